"""Repertoire files with random content.

`write_export` writes the layout of an immunoSEQ export of a cohort, like the files of the CMV cohort: 83 columns, and
about 840 bytes per row, most of which are the same in all rows of a file. `write_two_columns` writes only sequences and
counts.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

_BEFORE = (  # columns in the order of the export
    "rearrangement amino_acid frame_type rearrangement_type templates reads frequency productive_frequency cdr3_length "
    "v_family v_gene v_allele d_family d_gene d_allele j_family j_gene j_allele v_deletions d5_deletions d3_deletions "
    "j_deletions n2_insertions n1_insertions v_index n1_index n2_index d_index j_index"
)
_TIES = [f"{gene}_{level}_ties" for gene in "vdj" for level in ("family", "gene", "allele")]
_SAMPLE = {
    "sequence_tags": "",
    "v_shm_count": "null",
    "v_shm_indexes": "null",
    "antibody": "null",
    "sample_name": "{name}",
    "species": "Human",
    "locus": "TCRB",
    "product_subtype": "UltraDeep",
    "kit_pool": "null",
    "total_templates": "325812",
    "productive_templates": "264451",
    "outofframe_templates": "52694",
    "stop_templates": "8667",
    "dj_templates": "0",
    "total_rearrangements": "246021",
    "productive_rearrangements": "200110",
    "outofframe_rearrangements": "38349",
    "stop_rearrangements": "7562",
    "dj_rearrangements": "0",
    "total_reads": "7110580",
    "total_productive_reads": "4400430",
    "total_outofframe_reads": "2663260",
    "total_stop_reads": "46890",
    "total_dj_reads": "0",
    "productive_clonality": "0.045075792",
    "productive_entropy": "16.63707304",
    "sample_clonality": "0.051026145",
    "sample_entropy": "16.47473383",
    "sample_amount_ng": "null",
    "sample_cells_mass_estimate": "null",
    "fraction_productive_of_cells_mass_estimate": "null",
    "sample_cells": "0",
    "fraction_productive_of_cells": "0.0",
    "max_productive_frequency": "0.0906479582",
    "max_frequency": "0.0739461482",
    "counting_method": "v2",
    "primer_set": "Human-TCRB-PD1x",
    "release_date": "2015-09-15 18:29:29.463",
    "sample_tags": "Age:41 Years,Biological Sex:Male,Cohort:Cohort 01,Ethnic Group:Unknown Ethnicity,HLA MHC class I:"
    "HLA-A*24,HLA MHC class I:HLA-B*07,Racial Group:Unknown racial group,Species:Human,Tissue Source:gDNA,Tissue "
    "Source:PBMC,Tissue Source:T cells,Virus Diseases:Cytomegalovirus -",
    "fraction_productive": "0.6187960517169471",
    "order_name": "null",
    "kit_id": "null",
    "total_t_cells": "0",
}
_V_GENES = [f"{family:02d}-{gene:02d}" for family in range(2, 28) for gene in (1, 2)]
_J_GENES = [f"{family:02d}-{gene:02d}" for family in (1, 2) for gene in range(1, 7)]


def write_export(path: Path, n_rows: int, seed: int) -> int:
    """Write one repertoire, with gzip if the name ends in .gz; return the bytes of text."""
    rng = np.random.default_rng(seed)
    constant = "\t".join(value.format(name=path.name.split(".")[0]) for value in _SAMPLE.values())
    written = 0
    with gzip.open(path, "wb", compresslevel=4) if path.suffix == ".gz" else path.open("wb") as file:
        written += file.write("\t".join([*_BEFORE.split(), *_TIES, *_SAMPLE]).encode() + b"\n")
        for start in range(0, n_rows, 50_000):
            text = _make_rows(rng, min(50_000, n_rows - start), constant)
            written += file.write(text.encode())
    return written


def write_two_columns(path: Path, n_rows: int, seed: int) -> int:
    """Write one repertoire of sequences and counts, in the layout of the original DeepRC; return the bytes of text."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.round(rng.normal(14.5, 1.8, n_rows)), 8, 26).astype(int).tolist()
    residues = rng.choice(np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8), (n_rows, 26)).tobytes().decode()
    counts = rng.geometric(0.75, n_rows).tolist()
    rows = (f"{residues[26 * i : 26 * i + length]}\t{counts[i]}\n" for i, length in enumerate(lengths))
    text = "amino_acid\ttemplates\n" + "".join(rows)
    with gzip.open(path, "wb", compresslevel=4) if path.suffix == ".gz" else path.open("wb") as file:
        return file.write(text.encode())


def _make_rows(rng: np.random.Generator, n: int, constant: str) -> str:
    """Return random lines of an immunoSEQ export."""
    bases = rng.choice(np.frombuffer(b"ACGT", np.uint8), (n, 87)).tobytes().decode()
    lengths = np.clip(np.round(rng.normal(10.5, 1.8, n)), 5, 20).astype(int)  # number of residues between CAS and F
    residues = rng.choice(np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8), (n, 20)).tobytes().decode()
    frame = rng.choice(3, n, p=[0.82, 0.15, 0.03])
    v, j = rng.integers(len(_V_GENES), size=n), rng.integers(len(_J_GENES), size=n)
    templates = rng.geometric(0.75, n)
    lines = []
    for i, (length, kind, v_gene, j_gene, count) in enumerate(
        zip(lengths.tolist(), frame.tolist(), v.tolist(), j.tolist(), templates.tolist(), strict=True)
    ):
        middle = residues[20 * i : 20 * i + length]
        junction = ("CAS" + middle + "F", "", "CAS" + middle[:3] + "*" + middle[3:] + "F")[kind]
        v_name, j_name = _V_GENES[v_gene], _J_GENES[j_gene]
        lines.append(
            f"{bases[87 * i : 87 * i + 87]}\t{junction}\t{('In', 'Out', 'Stop')[kind]}\tVDJ\t{count}\t{21 * count}\t"
            f"{count / 325812}\t{count / 264451 if kind == 0 else 'null'}\t{3 * length + 12}\tTCRBV{v_name[:2]}\t"
            f"TCRBV{v_name}\t01\tTCRBD01\tTCRBD01-01\t01\tTCRBJ{j_name[:2]}\tTCRBJ{j_name}\t01\t4\t2\t0\t6\t15\t6\t20\t33\t"
            f"49\t39\t64\t\t\t\t\t\t\t\t\t\t{constant}\n"
        )
    return "".join(lines)
