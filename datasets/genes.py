"""Translate gene names of every export to IMGT names; families stay families, and ties stay ties.

The rules for a name:

- A gene has its IMGT name: `TCRBV06-02`, `TRBV06-2` and `hTRBV6-2` are `TRBV6-2`; `TRAV29DV5` is `TRAV29/DV5`,
  `TCRBV20-or09_02` the orphon `TRBV20/OR9-2`. Alleles are dropped: two alleles of one gene are that gene.
- immunoSEQ numbers the only gene of a family too: `TCRBV09-01` is `TRBV9`, but `TCRBV05-01` is `TRBV5-1`. Only
  IMGT's list of genes tells the two apart.
- A family stays a family: `TCRBV20`, `TCRBV20-X` and `TRBV20` are `TRBV20`. This holds for families of one gene
  too: `IGHV6` is not taken for `IGHV6-1`, nor `TRAV29` for `TRAV29/DV5`; but the family of TRBV9 is named as the gene.
- A tie stays a tie, written as in AIRR's `v_call`, separated by commas, in order: `TCRBV06-02/06-03`,
  `TRBV6-3*01,TRBV6-2*01` and `TRBV6-2;TRBV6-3` are `TRBV6-2,TRBV6-3`.
- Among hits with scores (MiXCR's `TRBV12-3*00(260.5),TRBV12-4*00(250)`) the best one is the call, as in MiXCR itself;
  genes that share the best score are a tie.
- Anything else is kept as it was found, and reported. This includes genes that only mice have, and names like
  `TRBV6S2` that mean different genes in different nomenclatures.

The genes are those of `deeprc.datasets.gene_list`. The tables of names and the patterns stand at the end of this
module, because its functions make them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.gene_list import GENE_LIST, RENAMED
from deeprc.datasets.missing import MISSING_GENES, is_missing

__all__ = [
    "LOCI",
    "GeneMapping",
    "GeneName",
    "Level",
    "find_mouse_genes",
    "infer_locus",
    "normalise_gene",
    "normalise_genes",
    "normalise_locus",
    "select_best_hits",
]

Level = Literal["gene", "family", "tie", "unknown", "unrecognised"]
"""Level of a name: one gene, one family, several of these (a tie), no gene, or a name that is not recognised."""

LOCI = ("TRA", "TRB", "TRG", "TRD", "IGH", "IGK", "IGL")


class GeneName(NamedTuple):
    """The meaning of a gene name.

    Attributes
    ----------
    name
        Name to store: an IMGT gene or family, a tie ("TRBV6-2,TRBV6-3"), "" if the gene is unknown, or the name as it
        was found if it is not recognised.
    locus
        One of `LOCI`, or "" if it is unknown or the names of a tie are of two loci.
    level
        Kind of the name, see `Level`.
    """

    name: str
    locus: str
    level: Level


@dataclass(frozen=True)
class GeneMapping:
    """The translation of N different gene names.

    Attributes
    ----------
    stored
        Name to store for each found name, (N,).
    renamed
        Names that are stored under another name: this one, by the found name without scores.
    mouse
        Found names that only mouse genes have: a sign that the file is not human.
    """

    stored: Categorical
    renamed: dict[str, str]
    mouse: tuple[str, ...]


@lru_cache(maxsize=1 << 17)  # the repertoires of a cohort share their names, at most 65,536 of each gene
def normalise_gene(name: str) -> GeneName:
    """Return the IMGT name of one gene call; see the module's text for the rules.

    Names are read as human ones, in any case and with any padding by zeros. A normalised name does not change.
    """
    text = name.strip()
    if is_missing(text, MISSING_GENES):
        return GeneName("", "", "unknown")
    return _read_calls(_split_calls(text.upper())) or _make_unrecognised_name(text)


def select_best_hits(name: str) -> str:
    """Return MiXCR's hits with scores as the names of the best hits, without scores; any other name unchanged."""
    if "(" not in name:
        return name
    calls = _split_calls(name)
    has_scores = any(_SCORE.search(call) for call in calls)  # then not all calls had one, and none was chosen
    return name if has_scores or not calls else ",".join(calls)


def find_mouse_genes(names: Sequence[str]) -> tuple[str, ...]:
    """Return those of a file's names that only mouse genes have."""
    return _select_mouse_genes((name, normalise_gene(name)) for name in names)


def _select_mouse_genes(pairs: Iterable[tuple[str, GeneName]]) -> tuple[str, ...]:
    """Return those of the found names, each with its gene, that only mouse genes have."""
    return tuple(name for name, gene in pairs if gene.level == "unrecognised" and _is_mouse_gene(name))


def normalise_genes(names: Sequence[str], *, of_mice: bool | None = None) -> GeneMapping:
    """Return the translation of different gene names.

    If the file has genes that only mice have, immunoSEQ's names are left as they were found: `TCRBV13-01` is TRBV13 of
    humans and TRBV13-1 of mice. `of_mice` says whether the file has such genes; None: `names` are all names of the
    file.
    """
    genes = [normalise_gene(name) for name in names]
    pairs = list(zip(names, genes, strict=True))
    mouse = _select_mouse_genes(pairs)
    if of_mice is None:
        of_mice = len(mouse) > 0
    if of_mice:
        genes = [
            _make_unrecognised_name(name.strip()) if name.strip().upper().startswith("TCR") else gene
            for name, gene in pairs
        ]
    vocabulary = tuple(sorted({gene.name for gene in genes}, key=_make_sort_key))
    code_of = {name: code for code, name in enumerate(vocabulary)}
    found_and_stored = {(_SCORE.sub("", name.strip()), gene.name) for name, gene in zip(names, genes, strict=True)}
    in_order = sorted(found_and_stored, key=lambda pair: (_make_sort_key(pair[0]), pair))
    return GeneMapping(
        stored=Categorical(np.array([code_of[gene.name] for gene in genes], np.int32), vocabulary),
        renamed={found: stored for found, stored in in_order if found != stored},
        mouse=mouse,
    )


def infer_locus(gene: str) -> str:
    """Return the locus of a gene by its name in any spelling; "" if it does not tell it. `TRAV29/DV5` is of TRA."""
    return normalise_gene(gene).locus


def normalise_locus(text: str) -> str:
    """Return the locus that a `locus` or `chain` column names; "" if it names none or several.

    It understands `TRB`, `TCRB`, `TCR-beta`, `beta chain`, `hsTCRB`, `IG heavy`, `BCR_Kappa`, `kappa` and similar
    names, in any case, also with the Greek letter. Text after a colon is ignored (`TRB:CASSF`).
    """
    return _find_common_value(_translate_locus(part.split(":")[0]) for part in re.split("[,;|]", text))


def _make_unrecognised_name(text: str) -> GeneName:
    """Return a name as it was found, with the locus that it names, if it names one."""
    loci = (locus.replace("TCR", "TR") for locus in _LOCUS.findall(text.upper()))
    return GeneName(text, _find_common_value(loci), "unrecognised")


def _split_calls(text: str) -> tuple[str, ...]:
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
    """Return the name that upper-case calls have together; None if one is not recognised or they contradict."""
    names: set[str] = set()
    for call in calls:
        match = _CALL.fullmatch(call)
        genes = () if match is None else _expand_short_tie(match["gene"])
        if not genes:
            return None
        names.update(genes)
    if not names or not _belong_together(names):
        return None
    name = ",".join(sorted(names, key=_make_sort_key))
    level: Level = "tie" if len(names) > 1 else "gene" if name in _GENES else "family"
    return GeneName(name, _find_common_value(gene[:3] for gene in names), level)


def _belong_together(names: set[str]) -> bool:
    """Return whether these can be candidates for one segment: all V, D or J, of one locus or of TRA and TRD."""
    loci = {gene[:3] for gene in names}
    return len({gene[3] for gene in names}) == 1 and (len(loci) == 1 or loci == {"TRA", "TRD"})


def _expand_short_tie(text: str) -> tuple[str, ...]:
    """Return one gene, or the genes of immunoSEQ's short tie, `TCRBV06-02/06-03`; otherwise ().

    In `TRBV12-3/4` the 4 could be a gene or a family: it is not understood.
    """
    gene = _find_imgt_name(text)
    if gene is not None:
        return (gene,)
    head, *others = text.split("/")
    start = _LOCUS.match(head)
    if start is None or any(("-" in other) != ("-" in head) for other in others):
        return ()
    genes = [_find_imgt_name(head), *(_find_imgt_name(start[0] + other) for other in others)]
    recognised = tuple(gene for gene in genes if gene is not None)
    return recognised if len(recognised) == len(genes) else ()


def _find_imgt_name(text: str) -> str | None:
    """Return the IMGT name of one gene or family without its allele."""
    key = _make_spelling_key(text)
    if key.endswith("-1") and key.removesuffix("-1") in _UNNUMBERED:
        # TCRAV14-01 is TRAV14/DV4 although IMGT has since named a TRAV14-1.
        is_of_immunoseq = text.startswith("TCR") or text.endswith("-01")
        if is_of_immunoseq or (key not in _NAMES and not _MOUSE_ONLY.fullmatch(key)):
            return _UNNUMBERED[key.removesuffix("-1")]
    return _NAMES.get(key.removesuffix("-X"))


def _make_spelling_key(text: str) -> str:
    """Return a key that all spellings of a gene have in common: `TRBV20OR9-2` for `TCRBV20-or09_02`."""
    key = re.sub(r"[()]", "", text.upper().replace("_", "-"))
    key = re.sub(r"^TCR", "TR", key)
    key = re.sub(r"(?<!\d)0+(?=\d)", "", key)  # padding
    key = re.sub(r"[-/](?=OR|DV)", "", key)  # orphons, and V genes that TRA and TRD share
    return re.sub(r"^([A-Z]{4})-", r"\1", key)  # IGHV_II-65_1


def _is_mouse_gene(name: str) -> bool:
    """Return whether one of the calls of a name is a gene that only mice have."""
    calls = (_CALL.fullmatch(call) for call in _split_calls(name.strip().upper()))
    return any(call is not None and _MOUSE_ONLY.fullmatch(_make_spelling_key(call["gene"])) for call in calls)


def _translate_locus(text: str) -> str:
    """Return the locus that one text names, see `normalise_locus`; "" if it names none."""
    text = text.casefold()
    for letter, spelled in _GREEK.items():
        text = text.replace(letter, spelled)
    word = re.sub("[^a-z]", "", text)  # "TCR-beta", "beta chain"
    return _LOCUS_WORDS.get(re.sub("^(?:hs|human|mm|mouse)|(?:chain|locus)$", "", word), "")


def _make_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sorting key that puts TRBV6 before TRBV10: a longer number is a larger one."""
    pieces = re.findall(r"0*([0-9]+)|([^0-9]+)", name)
    return [(len(number), number or other) for number, other in pieces]


def _find_common_value(values: Iterable[str]) -> str:
    """Return the value that all of these have; "" if there is none or there are several."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else ""


_GENES = frozenset(group + gene for group, genes in GENE_LIST.items() for gene in genes.split())
_ALPHA_DELTA_GENES = {gene.split("/DV")[0]: gene for gene in _GENES if "/DV" in gene}  # TRAV38-2: TRAV38-2/DV8
_FAMILIES = frozenset(re.split("[-/]", gene)[0] for gene in _GENES)

_NAMES = {
    **{_make_spelling_key(family): family for family in _FAMILIES},
    **RENAMED,
    **{_make_spelling_key(start): gene for start, gene in _ALPHA_DELTA_GENES.items() if "-" in start},
    **{_make_spelling_key(gene): gene for gene in _GENES},
}
"""Every gene and family by its `_make_spelling_key`; a name of a gene and a family, such as TRBV9, is the gene's."""

_UNNUMBERED = {_make_spelling_key(gene): gene for gene in _GENES if not re.search("[-/]", gene)} | {
    start: gene for start, gene in _ALPHA_DELTA_GENES.items() if "-" not in start
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
_LOCUS_PREFIXES = {"TR": ("tr", "tcr", "tcellreceptor"), "IG": ("ig", "immunoglobulin", "bcr")}
_LOCUS_WORDS = {chain: locus for locus, chain in _CHAINS.items()} | {
    start + end: locus
    for locus, chain in _CHAINS.items()
    for start in _LOCUS_PREFIXES[locus[:2]]
    for end in (locus[2].lower(), chain)
}
