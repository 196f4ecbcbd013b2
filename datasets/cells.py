"""Single cells of AnnData as a dataset: receptors as scirpy keeps them, one repertoire per donor.

scirpy (0.13 and later) keeps in `obsm["airr"]` a ragged array with a list of chains for each cell, and for each chain
the AIRR fields. Neither anndata nor scirpy is imported here.

Letters: C cells, N chains of all cells.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.cleaning import examine_file, find_kept_rows
from deeprc.datasets.frames import extract_categorical, extract_texts, find_constant_columns, to_arrow
from deeprc.datasets.genes import normalise_genes
from deeprc.datasets.in_memory import MemoryDataset, RowsInMemory, make_dataset, make_sheet
from deeprc.datasets.metadata import make_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.readers import Header, make_rows
from deeprc.datasets.readers.airr import AirrReader
from deeprc.errors import InputError, describe_missing_column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CellChains", "from_anndata", "read_cells", "set_chain_option"]

_logger = logging.getLogger(__name__)

_KEY = "airr"
_CELL, _DONOR = "cell_id", "donor of the cell"
_SOURCE = "AnnData"


def from_anndata(
    adata: Any,
    *,
    donor: str,
    chain: str | None = None,
    metadata: Any = None,
    options: ReadingOptions | None = None,
) -> MemoryDataset:
    """Make a dataset of single cells, one repertoire per donor; `deeprc.from_anndata` is this function.

    The count of a sequence is the number of its cells. Chains are cleaned as those of a file.

    Parameters
    ----------
    adata
        An AnnData with scirpy's `obsm["airr"]` (scirpy 0.13 and later), or a MuData with such a modality `airr`.
    donor
        Column of `obs` that names the donor of each cell. With another column, such as a cluster, the cells with the
        same value are one repertoire.
    chain
        Chain to keep, an AIRR locus (TRB, IGH, ...); needed if cells have several chains.
    metadata
        One row per donor: a table, or the path of a sheet. None: the columns of `obs` that have one value per donor.
    options
        Options that say which sequences are kept; None: the defaults of `ReadingOptions`.

    Raises
    ------
    InputError
        If an argument cannot be used.
    """
    options = set_chain_option(options, chain)
    cells = read_cells(adata, donor)
    names = cells.donors.vocabulary
    if metadata is None:
        others = [name for name in cells.obs.column_names if name != donor]
        sheet = make_metadata(
            {donor: list(names), **find_constant_columns(cells.obs, others, cells.donors)}, id_column=donor
        )
    else:
        sheet = make_sheet(metadata, options.id_column, names)
    return make_dataset(cells.rows, sheet, options)


def set_chain_option(options: ReadingOptions | None, chain: str | None) -> ReadingOptions:
    """Return the options, or the default ones, with a chain to keep if one is given."""
    options = ReadingOptions() if options is None else options
    return options if chain is None else replace(options, locus=chain)


@dataclass(frozen=True)
class CellChains:
    """The chains of cells, with the donors of the cells.

    Attributes
    ----------
    rows
        One row per chain, N, of the cells that have a donor.
    cell
        Index of the cell of each chain among all C cells, (N,).
    donors
        Donor of each cell that has one.
    obs
        Columns that describe these cells.
    annotated
        AnnData that has the chains.
    """

    rows: RowsInMemory
    cell: NDArray[np.int64]
    donors: Categorical
    obs: pa.Table
    annotated: Any

    def list_kept_chains(self, options: ReadingOptions) -> pd.DataFrame:
        """Return the chains that are kept, one row each, with the names that a dataset has for their sequences.

        The columns are `cell`, `repertoire_id`, `junction_aa`, and `v_call` and `j_call` where genes are known.
        """
        rows = self.rows.rows
        assert rows.repertoire is not None
        file_facts = examine_file(rows, _SOURCE)
        kept, sequences = find_kept_rows(rows, options.make_cleaning(), file_facts)
        columns: dict[str, Any] = {
            "cell": self.cell[kept],
            "repertoire_id": rows.repertoire.take(kept).names(),
            "junction_aa": [sequences.get_bytes(row).decode("latin-1").upper() for row in range(len(kept))],
        }
        for name, calls in rows.genes.items():
            stored = normalise_genes(calls.vocabulary, of_mice=name in file_facts.of_mice).stored
            columns[name] = stored.take(calls.codes[kept]).names()
        return pd.DataFrame(columns)


def read_cells(adata: Any, donor: str) -> CellChains:
    """Return the chains of all cells that have a donor.

    Parameters
    ----------
    adata
        An AnnData with chains in scirpy's layout, or a MuData with such a modality.
    donor
        Name of the column of `obs` that says from which donor a cell is.

    Raises
    ------
    InputError
        If there are no chains in scirpy's layout, or no column of donors.
    """
    annotated = _find_annotated(adata)
    cells, obs = annotated.obsm[_KEY], _join_cell_columns(annotated, adata)
    if not isinstance(donor, str):
        raise InputError(f"`donor`: expected the name of a column of obs, found {type(donor).__name__}")
    n_found = list(obs.columns).count(donor)
    if n_found == 0:
        raise InputError(f"obs has {describe_missing_column(donor, obs, 'for `donor`')}")
    if n_found > 1:
        raise InputError(f"obs has {n_found} columns {donor!r} for `donor`; expected one")
    has_donor = obs[donor].notna().to_numpy() & (obs[donor].astype(str).str.strip() != "").to_numpy()
    if not has_donor.all():
        _logger.warning("%d of %d cells have no donor (obs[%r]): left out", (~has_donor).sum(), len(obs), donor)
    if not has_donor.any():
        raise InputError(f"`donor`: obs[{donor!r}] is empty")
    known_cells = to_arrow(obs[has_donor].reset_index(drop=True))
    donors = extract_categorical(known_cells, donor).drop_unused()
    chains = cells[has_donor]
    n_chains = _count_chains_per_cell(chains)
    cell_of_chain = np.repeat(np.arange(len(n_chains)), n_chains)
    positions = np.flatnonzero(has_donor)[cell_of_chain]
    rows = _make_rows(chains, cell_of_chain, donors, obs.index[positions])
    return CellChains(RowsInMemory(rows, "airr", _SOURCE), positions, donors, known_cells, annotated)


def _find_annotated(adata: Any) -> Any:
    """Return the AnnData that holds the chains: a MuData's modality, or the AnnData itself."""
    annotated = adata
    if hasattr(adata, "mod"):
        if _KEY not in adata.mod:
            raise InputError(f"expected a modality {_KEY!r} in the MuData, found {', '.join(adata.mod) or 'none'}")
        annotated = adata.mod[_KEY]
    if not hasattr(annotated, "obsm") or _KEY not in annotated.obsm:
        kind = type(adata).__name__
        raise InputError(f'{kind}: expected scirpy\'s obsm["{_KEY}"] (scirpy 0.13 and later), found none')
    if not hasattr(annotated.obsm[_KEY], "fields"):
        kind = type(annotated.obsm[_KEY]).__name__
        raise InputError(f'obsm["{_KEY}"]: expected scirpy\'s ragged array, found {kind}')
    return annotated


def _join_cell_columns(annotated: Any, adata: Any) -> pd.DataFrame:
    """Return the table that describes the cells, with the columns of the MuData, if there is one."""
    described: pd.DataFrame = annotated.obs
    if annotated is adata:
        return described
    obs = adata.obs.loc[described.index]
    return described.assign(**{str(name): obs[name] for name in obs.columns if name not in described.columns})


def _count_chains_per_cell(chains: Any) -> NDArray[np.int64]:
    import awkward

    return np.asarray(awkward.to_numpy(awkward.fill_none(awkward.num(chains, axis=1), 0)), np.int64)


def _make_rows(chains: Any, cell_of_chain: NDArray[np.int64], donors: Categorical, names: pd.Index[Any]) -> Any:
    """Return the chains as rows of a table in AIRR's format, with the index of the cell and the donor of each.

    `names` has the name of each chain's cell, for messages.
    """
    import awkward
    import pyarrow as pa

    fields = [name for name in chains.fields if name != _CELL]
    layout = AirrReader().find_layout(Header(Path(_SOURCE), (*fields, "is_cell", _CELL)))
    if layout is None:
        raise InputError(f'obsm["{_KEY}"]: no field junction_aa, cdr3_aa or junction; it has {", ".join(fields)}')
    status = tuple(name for name in layout.status if name in fields)
    layout = replace(layout, counts=(), status=status, repertoire=(_DONOR,))  # cells are counted
    flat = awkward.flatten(chains, axis=1)
    needed = [name for name in layout.columns if name in fields]
    arrays = [pa.chunked_array([awkward.to_arrow(flat[name], extensionarray=False)]) for name in needed]
    table = pa.Table.from_arrays(arrays, names=needed)
    texts = {name: extract_texts(table, name) for name in layout.sequences.values()}
    names_of_cells = tuple(map(str, range(int(cell_of_chain.max(initial=-1)) + 1)))  # names of cells may repeat
    coded = {
        _CELL: Categorical(cell_of_chain.astype(np.int32), names_of_cells),
        _DONOR: donors.take(cell_of_chain),
        **{name: extract_categorical(table, name) for name in layout.coded_columns if name in fields},
    }
    return make_rows(texts, coded, layout, lambda row: f"{_SOURCE}: cell {names[row]!r}")
