"""V, D and J gene names of every export as IMGT names: families stay families, ties stay ties.

What becomes of a name:

- A gene has its IMGT name: `TCRBV06-02`, `TRBV06-2` and `hTRBV6-2` are `TRBV6-2`; `TRAV29DV5` is `TRAV29/DV5`,
  `TCRBV20-or09_02` the orphon `TRBV20/OR9-2`. Alleles are dropped: two alleles of one gene are that gene.
- immunoSEQ numbers the only gene of a family too: `TCRBV09-01` is `TRBV9`, but `TCRBV05-01` is `TRBV5-1`. Only
  IMGT's list of genes tells the two apart.
- A family stays a family: `TCRBV20`, `TCRBV20-X` and `TRBV20` are `TRBV20`. This holds for families of one gene
  too: `IGHV6` is not taken for `IGHV6-1`, nor `TRAV29` for `TRAV29/DV5`; but the family of TRBV9 is named as the gene.
- A tie stays a tie, written as in AIRR's `v_call`, separated by commas, in order: `TCRBV06-02/06-03`,
  `TRBV6-3*01,TRBV6-2*01` and `TRBV6-2;TRBV6-3` are `TRBV6-2,TRBV6-3`.
- Of hits with scores (MiXCR's `TRBV12-3*00(260.5),TRBV12-4*00(250)`) the best is the call, as it is MiXCR's own;
  genes that share the best score are a tie.
- Anything else is kept as it was found, and reported. This includes genes that only mice have, and names like
  `TRBV6S2` that mean different genes in different nomenclatures.

The genes are those of IMGT/GENE-DB, human, functional or not (https://www.imgt.org/genedb/), in the listing of
tidytcells 2.2.1; its own standardisation is not used because it returns one gene for a family or a tie.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LEVELS",
    "LOCI",
    "GeneMapping",
    "GeneName",
    "GeneRow",
    "Level",
    "best_hits",
    "locus_of",
    "mouse_genes",
    "normalise_gene",
    "normalise_genes",
    "normalise_locus",
]

Level = Literal["gene", "family", "tie", "unknown", "unrecognised"]
"""What a name tells: one gene, one family, several of these, nothing at all, or nothing that we understand."""

LEVELS: tuple[Level, ...] = get_args(Level)

LOCI = ("TRA", "TRB", "TRG", "TRD", "IGH", "IGK", "IGL")

_UNKNOWN = frozenset(
    {"", "-", ".", "na", "n/a", "nan", "none", "null", "no data", "unresolved", "unknown", "undefined", "(undefined)"}
)


class GeneName(NamedTuple):
    """A gene name understood.

    Attributes
    ----------
    name
        What is stored: an IMGT gene or family, a tie ("TRBV6-2,TRBV6-3"), "" if the gene is unknown, or the name as
        it was found if it is not recognised.
    locus
        One of `LOCI`, or "" if it is unknown or the names of a tie are of two loci.
    level
        One of `LEVELS`.
    """

    name: str
    locus: str
    level: Level


class GeneRow(NamedTuple):
    """One line of the table of what was mapped."""

    found: str
    stored: str
    level: Level


@dataclass(frozen=True)
class GeneMapping:
    """What became of the N names of a vocabulary.

    Attributes
    ----------
    vocabulary
        The names to store, each once.
    codes
        (N,) for each name found, the index of its new name in `vocabulary`.
    levels
        For each name found, its level.
    rows
        The table of what was mapped, for people: each spelling once, scores left out.
    mouse
        The names found that only mouse genes have: a sign that the file is not human.
    """

    vocabulary: tuple[str, ...]
    codes: NDArray[np.intp]
    levels: tuple[Level, ...]
    rows: tuple[GeneRow, ...]
    mouse: tuple[str, ...]

    @property
    def counts(self) -> dict[Level, int]:
        """How many of the names found are at each level."""
        counts = Counter(self.levels)
        return {level: counts[level] for level in LEVELS}


def normalise_gene(name: str) -> GeneName:
    """Return the IMGT name of one gene call; see the module's text for the rules.

    Names are read as human ones, in any case and with any padding. A normalised name stays what it is.
    """
    text = name.strip()
    if text.lower() in _UNKNOWN:
        return GeneName("", "", "unknown")
    return _read_calls(_best_calls(text.upper())) or _as_found(text)


def best_hits(name: str) -> str:
    """Return MiXCR's hits with scores as the names of the best of them, without scores; any other name as it is."""
    calls = _best_calls(name) if "(" in name else ()
    return name if any(_SCORE.search(call) for call in calls) else ",".join(calls) or name


def mouse_genes(names: Sequence[str]) -> tuple[str, ...]:
    """Return those of a file's names that only mouse genes have."""
    return tuple(name for name in names if normalise_gene(name).level == "unrecognised" and _is_of_mice(name))


def normalise_genes(names: Sequence[str], *, of_mice: bool | None = None) -> GeneMapping:
    """Normalise distinct names; `names[i]` becomes `vocabulary[codes[i]]`.

    If the file has genes that only mice have, immunoSEQ's names are left as they were found: `TCRBV13-01` is TRBV13 of
    man and TRBV13-1 of mice. `of_mice` says whether it has; None: the names are all of the file's.
    """
    genes = [normalise_gene(name) for name in names]
    pairs = list(zip(names, genes, strict=True))
    mouse = mouse_genes(names)
    if mouse if of_mice is None else of_mice:
        genes = [_as_found(name.strip()) if name.strip().upper().startswith("TCR") else gene for name, gene in pairs]
    vocabulary = sorted({gene.name for gene in genes}, key=_natural)
    position = {name: code for code, name in enumerate(vocabulary)}
    found = (_SCORE.sub("", name.strip()) for name in names)
    rows = {GeneRow(spelling, gene.name, gene.level) for spelling, gene in zip(found, genes, strict=True)}
    return GeneMapping(
        vocabulary=tuple(vocabulary),
        codes=np.array([position[gene.name] for gene in genes], np.intp),
        levels=tuple(gene.level for gene in genes),
        rows=tuple(sorted(rows, key=lambda row: (_natural(row.found), row))),
        mouse=mouse,
    )


def locus_of(v_call: str, j_call: str = "") -> str:
    """Return the locus of a sequence from its gene names in any spelling, "" where they do not tell.

    The J gene decides between TRA and TRD: the V genes of the two lie side by side and are shared
    (`TRAV29/DV5` alone counts as TRA). Any other disagreement gives "".
    """
    v, j = normalise_gene(v_call).locus, normalise_gene(j_call).locus
    if not j or v == j:
        return v
    return j if not v or {v, j} == {"TRA", "TRD"} else ""


def normalise_locus(text: str) -> str:
    """Return the locus that a `locus` or `chain` column names, "" if it names none or several.

    Understood are `TRB`, `TCRB`, `TCR-beta`, `beta chain`, `hsTCRB`, `IG heavy`, `kappa` and their like, also with
    the Greek letter, in any case, with or without something after a colon (`TRB:CASSF`).
    """
    return _only(_locus_word(part.split(":")[0]) for part in re.split("[,;|]", text))


def _as_found(text: str) -> GeneName:
    loci = (locus.replace("TCR", "TR") for locus in _LOCUS.findall(text.upper()))
    return GeneName(text, _only(loci), "unrecognised")


def _best_calls(text: str) -> tuple[str, ...]:
    """Split an upper-case name into its calls; where all have scores, only the best of them, without scores."""
    calls = [call for call in _SEPARATOR.split(text) if call]
    scored = [match for call in calls if (match := _SCORED.fullmatch(call))]
    if not scored or len(scored) < len(calls):
        return tuple(calls)
    scores = [float(match[2]) for match in scored]
    best = max(scores)
    return tuple(match[1] for match, score in zip(scored, scores, strict=True) if score == best)


@lru_cache(maxsize=1 << 14)
def _read_calls(calls: tuple[str, ...]) -> GeneName | None:
    """Return what upper-case calls name together, None if one is not recognised or they contradict each other."""
    found: set[str] = set()
    for call in calls:
        match = _CALL.fullmatch(call)
        genes = () if match is None else _short_tie(match["gene"])
        if not genes:
            return None
        found.update(genes)
    if not found or not _belong_together(found):
        return None
    name = ",".join(sorted(found, key=_natural))
    level: Level = "tie" if len(found) > 1 else "gene" if name in _GENES else "family"
    return GeneName(name, _only(gene[:3] for gene in found), level)


def _belong_together(found: set[str]) -> bool:
    """Tell whether these can be candidates for one segment: all V, D or J, of one locus or of TRA and TRD."""
    loci = {gene[:3] for gene in found}
    return len({gene[3] for gene in found}) == 1 and (len(loci) == 1 or loci == {"TRA", "TRD"})


def _short_tie(text: str) -> tuple[str, ...]:
    """Resolve one gene, or immunoSEQ's tie of genes with the start said once, `TCRBV06-02/06-03`; else ().

    In `TRBV12-3/4` the 4 could be a gene or a family: it is not understood.
    """
    gene = _one_gene(text)
    if gene is not None:
        return (gene,)
    head, *others = text.split("/")
    start = _GROUP.match(head)
    if start is None or any(("-" in other) != ("-" in head) for other in others):
        return ()
    genes = [_one_gene(head), *(_one_gene(start[0] + other) for other in others)]
    known = tuple(gene for gene in genes if gene is not None)
    return known if len(known) == len(genes) else ()


def _one_gene(text: str) -> str | None:
    """Return the IMGT name of one gene or family without its allele."""
    key = _key(text)
    only_gene = _UNNUMBERED.get(key.removesuffix("-1")) if key.endswith("-1") else None
    if only_gene is not None:
        # TCRAV14-01 is TRAV14/DV4 although IMGT has since named a TRAV14-1.
        immunoseq = text.startswith("TCR") or text.endswith("-01")
        if immunoseq or (key not in _NAMES and not _MOUSE_ONLY.fullmatch(key)):
            return only_gene
    return _NAMES.get(key.removesuffix("-X"))


def _key(text: str) -> str:
    """Return what all spellings of a gene have in common: `TRBV20OR9-2` for `TCRBV20-or09_02`."""
    key = re.sub(r"[()]", "", text.upper().replace("_", "-"))
    key = re.sub(r"^TCR", "TR", key)
    key = re.sub(r"(?<!\d)0+(?=\d)", "", key)  # padding
    key = re.sub(r"[-/](?=OR|DV)", "", key)  # orphons, and V genes that TRA and TRD share
    return re.sub(r"^([A-Z]{4})-", r"\1", key)  # IGHV_II-65_1


def _is_of_mice(name: str) -> bool:
    calls = (_CALL.fullmatch(call) for call in _best_calls(name.strip().upper()))
    return any(call is not None and _MOUSE_ONLY.fullmatch(_key(call["gene"])) for call in calls)


def _locus_word(text: str) -> str:
    text = text.casefold()
    for letter, spelled in _GREEK.items():
        text = text.replace(letter, spelled)
    word = re.sub("[^a-z]", "", text)  # "TCR-beta", "beta chain"
    return _LOCUS_WORDS.get(re.sub("^(?:hs|human|mm|mouse)|(?:chain|locus)$", "", word), "")


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sorting key that puts TRBV6 before TRBV10: a longer number is a larger one."""
    parts = re.findall(r"0*([0-9]+)|([^0-9]+)", name)
    return [(len(number), number or other) for number, other in parts]


def _only(values: Iterable[str]) -> str:
    """Return the one value that all of these are, "" if there is none or there are several."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else ""


_GENE_LIST = {
    "TRAV": (
        "1-1 1-2 2 3 4 5 6 7 8-1 8-2 8-3 8-4 8-5 8-6 8-6-1 8-7 9-1 9-2 10 11 11-1 12-1 12-2 12-3 13-1 13-2 14-1 "
        "14/DV4 15 16 17 18 19 20 21 22 23/DV6 24 25 26-1 26-2 27 28 29/DV5 30 31 32 33 34 35 36/DV7 37 38-1 "
        "38-2/DV8 39 40 41 46 A B C"
    ),
    "TRAJ": (
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 "
        "39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61"
    ),
    "TRBV": (
        "1 2 3-1 3-2 4-1 4-2 4-3 5-1 5-2 5-3 5-4 5-5 5-6 5-7 5-8 6-1 6-2 6-3 6-4 6-5 6-6 6-7 6-8 6-9 7-1 7-2 7-3 "
        "7-4 7-5 7-6 7-7 7-8 7-9 8-1 8-2 9 10-1 10-2 10-3 11-1 11-2 11-3 12-1 12-2 12-3 12-4 12-5 13 14 15 16 17 18 "
        "19 20-1 21-1 22-1 23-1 24-1 25-1 26 27 28 29-1 30 A B C 20/OR9-2 21/OR9-2 22/OR9-2 23/OR9-2 24/OR9-2 "
        "25/OR9-2 26/OR9-2 29/OR9-2 A/OR9-2"
    ),
    "TRBD": "1 2",
    "TRBJ": "1-1 1-2 1-3 1-4 1-5 1-6 2-1 2-2 2-2P 2-3 2-4 2-5 2-6 2-7",
    "TRGV": "1 2 3 4 5 5P 6 7 8 9 10 11 A B",
    "TRGJ": "1 2 P P1 P2",
    "TRDV": "1 2 3",
    "TRDD": "1 2 3",
    "TRDJ": "1 2 3 4",
    "IGHV": (
        "1-2 1-3 1-8 1-12 1-14 1-17 1-18 1-24 1-38-4 1-45 1-46 1-58 1-67 1-68 1-68D 1-69 1-69-2 1-69D 1-NL1 2-5 "
        "2-10 2-26 2-70 2-70D 3-6 3-7 3-7-2 3-9 3-11 3-13 3-15 3-16 3-19 3-20 3-21 3-22 3-23 3-23D 3-25 3-29 3-30 "
        "3-30-2 3-30-3 3-30-5 3-30-7 3-30-9 3-30-22 3-30-33 3-30-42 3-30-52 3-30-62 3-30-73 3-30-82 3-30-92 3-32 "
        "3-33 3-33-2 3-35 3-36 3-37 3-38 3-38-3 3-41 3-42 3-42D 3-43 3-43D 3-47 3-48 3-49 3-50 3-52 3-53 3-54 3-57 "
        "3-60 3-62 3-63 3-64 3-64D 3-65 3-66 3-69-1 3-71 3-72 3-73 3-74 3-75 3-76 3-79 3-NL1 4-4 4-28 4-30-2 4-30-4 "
        "4-30-6 4-30-8 4-31 4-34 4-38-2 4-39 4-55 4-59 4-61 4-80 5-10-1 5-51 5-78 6-1 7-4-1 7-27 7-34-1 7-40 7-40D "
        "7-56 7-81 7-NL1 8-51-1 (II)-1-1 (II)-4-4 (II)-7-1 (II)-12-1 (II)-15-1 (II)-20-1 (II)-22-1 (II)-22-1D "
        "(II)-26-2 (II)-28-1 (II)-30-1 (II)-30-21 (II)-30-32 (II)-30-41 (II)-30-51 (II)-30-61 (II)-30-72 (II)-30-81 "
        "(II)-30-91 (II)-31-1 (II)-33-1 (II)-40-1 (II)-43-1 (II)-43-1D (II)-44-2 (II)-46-1 (II)-49-1 (II)-51-2 "
        "(II)-53-1 (II)-60-1 (II)-62-1 (II)-65-1 (II)-67-1 (II)-74-1 (II)-78-1 (III)-2-1 (III)-5-1 (III)-5-2 "
        "(III)-10-2 (III)-11-1 (III)-13-1 (III)-16-1 (III)-22-2 (III)-22-2D (III)-25-1 (III)-26-1 (III)-38-1 "
        "(III)-38-1D (III)-44 (III)-44D (III)-47-1 (III)-67-2 (III)-67-3 (III)-67-3D (III)-67-4 (III)-67-4D "
        "(III)-76-1 (III)-82 (IV)-44-1 1/OR15-1 1/OR15-2 1/OR15-3 1/OR15-4 1/OR15-5 1/OR15-6 1/OR15-9 1/OR16-1 "
        "1/OR16-2 1/OR16-3 1/OR16-4 1/OR16-21 1/OR16-22 1/OR16-24 1/OR16-26 1/OR21-1 2/OR16-5 2/OR16-23 3/OR15-7 "
        "3/OR16-6 3/OR16-7 3/OR16-8 3/OR16-9 3/OR16-10 3/OR16-11 3/OR16-12 3/OR16-13 3/OR16-14 3/OR16-15 3/OR16-16 "
        "3/OR16-17 3/OR16-18 3/OR16-19 3/OR16-20 4/OR15-8 (III)/OR16-25 (III)/OR16-27 (III)/OR16-28"
    ),
    "IGHD": (
        "1-1 1-7 1-14 1-20 1-26 2-2 2-8 2-15 2-21 3-3 3-9 3-10 3-16 3-22 4-4 4-11 4-17 4-23 5-5 5-12 5-18 5-24 6-6 "
        "6-13 6-19 6-25 7-27 1/OR15-1a 1/OR15-1b 2/OR15-2a 2/OR15-2b 3/OR15-3a 3/OR15-3b 4/OR15-4a 4/OR15-4b "
        "5/OR15-5a 5/OR15-5b"
    ),
    "IGHJ": "1 1P 2 2P 3 3P 4 5 6",
    "IGKV": (
        "1-5 1-6 1-8 1-9 1-12 1-13 1-16 1-17 1-22 1-27 1-32 1-33 1-35 1-37 1-39 1-40-1 1D-7-1 1D-8 1D-12 1D-13 "
        "1D-16 1D-17 1D-22 1D-27 1D-32 1D-33 1D-35 1D-37 1D-39 1D-40-1 1D-42 1D-43 2-4 2-10 2-14 2-18 2-19 2-23 "
        "2-24 2-26 2-28 2-29 2-30 2-36 2-38 2-40 2D-10 2D-14 2D-18 2D-19 2D-23 2D-24 2D-26 2D-28 2D-29 2D-30 2D-36 "
        "2D-38 2D-40 3-7 3-11 3-15 3-20 3-25 3-31 3-34 3D-7 3D-11 3D-15 3D-20 3D-25 3D-31 3D-34 4-1 5-2 6-21 6D-21 "
        "6D-41 7-3 (II)-26-1 (II)D-26-1 1/OR1-1 1/OR2-0 1/OR2-1 1/OR2-2 1/OR2-3 1/OR2-6 1/OR2-9 1/OR2-11 1/OR2-108 "
        "1/OR2-118 1/OR9-1 1/OR9-2 1/OR10-1 1/OR15-118 1/OR22-1 1/OR22-5 1/OR-2 1/OR-3 1/OR-4 1/ORY-1 2/OR2-1 "
        "2/OR2-2 2/OR2-4 2/OR2-7 2/OR2-7D 2/OR2-8 2/OR2-10 2/OR22-3 2/OR22-4 3/OR2-5 3/OR2-268 3/OR22-2"
    ),
    "IGKJ": "1 2 3 4 5",
    "IGLV": (
        "1-36 1-40 1-41 1-44 1-47 1-50 1-51 1-62 1-67-1 2-5 2-8 2-11 2-14 2-18 2-23 2-28 2-33 2-34 3-1 3-2 3-4 3-6 "
        "3-7 3-9 3-10 3-12 3-13 3-15 3-16 3-17 3-19 3-21 3-22 3-24 3-25 3-26 3-27 3-29 3-30 3-31 3-32 4-3 4-7-1 "
        "4-10-1 4-60 4-69 5-37 5-39 5-45 5-48 5-52 6-57 7-35 7-43 7-46 8-61 9-49 10-54 10-67 11-55 (I)-11-1 (I)-20 "
        "(I)-34-1 (I)-34-2 (I)-38 (I)-42 (I)-45-1 (I)-48-1 (I)-56 (I)-63 (I)-68 (I)-70 (I)-70-1 (II)-9-1 (II)-15-1 "
        "(II)-24-1 (III)-59-1 (III)-60-1 (III)-60-2 (IV)-53 (IV)-55-1 (IV)-59 (IV)-61-1 (IV)-64 (IV)-65 (IV)-66-1 "
        "(V)-58 (V)-61-1 (V)-66 (VI)-16-1 (VI)-22-1 (VI)-25-1 (VII)-41-1 (VII)-59-1 (VII)-68-1 8/OR8-1"
    ),
    "IGLJ": "1 2 2A 3 4 5 6 7",
}
"""Human V, D and J genes by group; orphons, genes outside their locus, come last."""

_RENAMED = {
    "IGHV1-C": "IGHV1-38-4",
    "IGHV1-F": "IGHV1-69-2",
    "IGHV3-D": "IGHV3-38-3",
    "IGHV3-H": "IGHV3-69-1",
    "IGHV4-B": "IGHV4-38-2",
    "IGHV5-A": "IGHV5-10-1",
}
"""Provisional names that IMGT has replaced; immunoSEQ and older references have them."""

_GENES = frozenset(group + gene for group, genes in _GENE_LIST.items() for gene in genes.split())
_SHARED = {gene.split("/DV")[0]: gene for gene in _GENES if "/DV" in gene}  # TRAV38-2: TRAV38-2/DV8
_FAMILIES = frozenset(re.split("[-/]", gene)[0] for gene in _GENES)

_NAMES = {
    **{_key(family): family for family in _FAMILIES},
    **_RENAMED,
    **{_key(start): gene for start, gene in _SHARED.items() if "-" in start},
    **{_key(gene): gene for gene in _GENES},
}
"""Every gene and family by its `_key`; where both have one name, as TRBV9, it is the gene's."""

_UNNUMBERED = {_key(gene): gene for gene in _GENES if not re.search("[-/]", gene)} | {
    start: gene for start, gene in _SHARED.items() if "-" not in start
}
"""Genes whose IMGT name is their family's; immunoSEQ gives them the number 1."""

_MOUSE_ONLY = re.compile(
    r"TRAV(?:\d+[DN](?:-\d)?|[3-7]-[1-7]|9-[34]|12-4|13-[345]|14-[23]|15-[123]|21(?=DV))(?:DV.+)?"
    r"|TRBV(?:13-[123]|31)|TRBJ1-7|TRDV2-[12]|TRGJ[34]"
)
"""Keys of the mouse's T-cell receptor genes that are no human gene or family, from the same source."""

_SEPARATOR = re.compile(r"\s*[,;|]\s*|\s+OR\s+|/(?=TC?R[ABGD]|IG[HKL])")
_SCORE = re.compile(r"\(\d+(?:\.\d+)?\)")
_SCORED = re.compile(r"(.+)\((\d+(?:\.\d+)?)\)")
_CALL = re.compile(
    r"(?:OR\s+)?(?:HOMSAP\s+)?H?"  # IMGT/HighV-QUEST: "Homsap TRBV6-2*01 F, or Homsap TRBV6-3*01 F"
    r"(?P<gene>[A-Z0-9_()/-]+)"
    r"(?:\*[^\s()*/]*)?"  # the allele
    r"(?:\s+[\[(]?(?:F|ORF|P)[\])]?)?"  # whether the allele is functional
)
_GROUP = re.compile(r"(?:TC?R[ABGD]|IG[HKL])[VDJ]")
_LOCUS = re.compile(r"(TC?R[ABGD]|IG[HKL])[VDJ]")

# Letters that look like Latin ones are written by their number.
_GREEK = {
    "\u03b1": "alpha",
    "\u03b2": "beta",
    "\u03b3": "gamma",
    "\u03b4": "delta",
    "\u03ba": "kappa",
    "\u03bb": "lambda",
}
_CHAINS = dict(zip(LOCI, ("alpha", "beta", "gamma", "delta", "heavy", "kappa", "lambda"), strict=True))
_STARTS = {"TR": ("tr", "tcr", "tcellreceptor"), "IG": ("ig", "immunoglobulin")}
_LOCUS_WORDS = {chain: locus for locus, chain in _CHAINS.items()} | {
    start + end: locus
    for locus, chain in _CHAINS.items()
    for start in _STARTS[locus[:2]]
    for end in (locus[2].lower(), chain)
}
