"""Databases of known specificities, in the forms in which people have them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.specificity import read_database
from deeprc.specificity.databases import read_sequences

VDJDB = (
    "gene\tcdr3\tspecies\tantigen.epitope\tantigen.gene\tantigen.species\tv.segm\tj.segm\n"
    "TRB\tCASSIRSSYEQYF\tHomoSapiens\tGILGFVFTL\tM\tInfluenzaA\tTRBV19*01\tTRBJ2-7*01\n"
    "TRB\tCASSDRGF\tMusMusculus\tSIINFEKL\tOVA\tChicken\tTRBV1\tTRBJ2-7\n"
    "TRB\tCASS_RGF\tHomoSapiens\tNLV\tpp65\tCMV\tTRBV1\tTRBJ2-7\n"
)
PAIRED = (
    "cdr3.alpha\tv.alpha\tcdr3.beta\tv.beta\tspecies\tantigen.epitope\tantigen.gene\tantigen.species\n"
    "CAVSDF\tTRAV1-2*01\tCASSIRSSYEQYF\tTRBV19*01\tHomoSapiens\tGILGFVFTL\tM\tInfluenzaA\n"
    "\t\tCASSLAPGATNEKLFF\tTRBV7-6\tHomoSapiens\tNLVPMVATV\tpp65\tCMV\n"
)
MCPAS = (
    '"CDR3.alpha.aa","CDR3.beta.aa","Species","Pathology","Antigen.protein","Epitope.peptide","TRAV","TRBV"\n'
    '"NA","CASSIRSSYEQYF","Human","Influenza","Matrix, M1","GILGFVFTL","NA","TRBV19"\n'
    '"NA","CASSDRGF","Mouse","OVA","OVA","SIINFEKL","NA","TRBV1"\n'
)
IEDB = (
    "Receptor,Epitope,Epitope,Epitope,Chain 1,Chain 2,Chain 2,Chain 2,Chain 2\n"
    "Type,Name,Source Molecule,Source Organism,CDR3 Curated,CDR3 Curated,CDR3 Calculated,Calculated V Gene,"
    "Organism IRI\n"
    "alphabeta,GILGFVFTL,Matrix protein 1,Influenza A virus,,,ASSIRSSYEQY,TRBV19*01,"
    "http://purl.obolibrary.org/obo/NCBITaxon_9606\n"
    "alphabeta,SIINFEKL,Ovalbumin,Gallus gallus,,ASSDRG,,TRBV1*01,http://purl.obolibrary.org/obo/NCBITaxon_10090\n"
)
OLD_IEDB = (
    "Description,Antigen,Organism,Chain 1 CDR3 Curated,Chain 2 CDR3 Curated,Calculated Chain 2 V Gene\n"
    "GILGFVFTL,Matrix protein 1,Influenza A virus,,ASSIRSSYEQY,TRBV19*01\n"
)
OWN = "junction_aa,v_call,antigen_organism\nCASSIRSSYEQYF,TCRBV19-01,InfluenzaA\ncasslapgatneklff,,CMV\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VDJDB, [("ASSIRSSYEQY", "TRBV19", "GILGFVFTL", "M", "InfluenzaA")]),
        (
            PAIRED,
            [
                ("AVSD", "TRAV1-2", "GILGFVFTL", "M", "InfluenzaA"),
                ("ASSIRSSYEQY", "TRBV19", "GILGFVFTL", "M", "InfluenzaA"),
                ("ASSLAPGATNEKLF", "TRBV7-6", "NLVPMVATV", "pp65", "CMV"),
            ],
        ),
        (MCPAS, [("ASSIRSSYEQY", "TRBV19", "GILGFVFTL", "Matrix, M1", "Influenza")]),
        (IEDB, [("ASSIRSSYEQY", "TRBV19", "GILGFVFTL", "Matrix protein 1", "Influenza A virus")]),
        (OLD_IEDB, [("ASSIRSSYEQY", "TRBV19", "GILGFVFTL", "Matrix protein 1", "Influenza A virus")]),
        (OWN, [("ASSIRSSYEQY", "TRBV19", "", "", "InfluenzaA"), ("ASSLAPGATNEKLF", "", "", "", "CMV")]),
    ],
)
def test_every_form_gives_the_same_columns(text: str, expected: list[tuple[str, ...]], tmp_path: Path) -> None:
    path = tmp_path / "database.txt.gz"
    path.write_bytes(gzip.compress(text.encode()))
    found = read_database(path)
    assert list(found) == ["cdr3_aa", "v_call", "epitope", "antigen", "antigen_organism"]
    assert list(found.itertuples(index=False, name=None)) == expected


def test_receptors_of_other_hosts_are_left_out_unless_all_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "vdjdb.txt"
    path.write_text(VDJDB)
    assert read_database(path, host="mouse")["cdr3_aa"].tolist() == ["ASSDRG"]
    assert read_database(path, host=None)["cdr3_aa"].tolist() == ["ASSIRSSYEQY", "ASSDRG"]
    path.write_text(VDJDB.replace("MusMusculus", "HomoSapiens").replace("HomoSapiens", "MacacaMulatta"))
    with pytest.raises(InputError, match=r"vdjdb\.txt: holds no amino-acid sequence of human receptors with a known"):
        read_database(path)


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "other.tsv"
    path.write_text("junction_aa\tcount\nCASSF\t1\n")
    with pytest.raises(
        InputError, match=r"other\.tsv: not a database of known specificities: .*; found junction_aa, count"
    ):
        read_database(path)
    path.write_text("x" * 100_000 + "\nCASSF\n")
    with pytest.raises(InputError, match=r"; found x{60}\.\.\.$"):
        read_database(path)
    path.write_text("")
    with pytest.raises(InputError, match=r"other\.tsv: the file is empty"):
        read_database(path)
    with pytest.raises(InputError, match="no such file"):
        read_database(tmp_path / "absent")


def test_rows_are_never_shifted_or_swallowed(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("junction_aa\tepitope\nCASSF\tA\t\nCASSWF\tB\n")  # an empty field at the end
    assert read_database(path)["cdr3_aa"].tolist() == ["ASS", "ASSW"]
    path.write_text("junction_aa\tepitope\nCASSF\tA\tx\n")
    with pytest.raises(InputError, match=r"own\.tsv: row 2: expected 2 fields, found 3"):
        read_database(path)
    path.write_text('junction_aa\tepitope\nCASSF\t"A\nCASSWF\tB"\nCASSWWF\t"C"\n')
    assert read_database(path)["epitope"].tolist() == ['"A', 'B"', "C"]
    path.write_text("junction_aa\tepitope\tepitope\nCASSF\tA\tB\n")
    with pytest.raises(InputError, match=r"own\.tsv: two columns are named 'epitope'"):
        read_database(path)
    path.write_bytes(gzip.compress(b"junction_aa\tepitope\nCASSF\t" + b"A" * (1 << 25)))
    with pytest.raises(InputError, match=r"own\.tsv: a line or a field in quotes is longer than 16 MiB"):
        read_database(path)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"junction_aa\tepitope\nCAS\0SF\tNLV\nCASSWF\tGLC\n")
    with pytest.raises(InputError, match=r"a\.tsv: not a text table \(it holds binary data\)"):
        read_database(path)


def test_a_damaged_container_is_told_from_a_table(cohort: RepertoireDataset, tmp_path: Path) -> None:
    path = tmp_path / "cut.h5"
    path.write_bytes(Path(cohort.container.path).read_bytes()[:5000])
    for read in (read_sequences, read_database):
        with pytest.raises(InputError, match=r"cut\.h5: is an HDF5 file, either damaged or not a container"):
            read(path)


def test_names_cannot_steer_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("junction_aa\tantigen_organism\nCASSF\tC\x1b]0;t\x07MV\n")
    assert read_database(path)["antigen_organism"].tolist() == ["C ]0;t MV"]
    path.write_text("junction_aa\tantigen_organism\nCASSF\tC\u202e\u2066MV\n", encoding="utf-8")  # reverses the line
    assert read_database(path)["antigen_organism"].tolist() == ["C MV"]
