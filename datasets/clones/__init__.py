"""Clones of a cohort: which repertoires carry them, how many each repertoire has, and where known clones occur.

A clone is a sequence, or a sequence with the genes of the clone definition (`v_call`, `j_call`, or one of them).
Wherever it occurs, it is the same clone.

| module | content |
|---|---|
| `shared` | `find_shared_clones`: the clones that at least two repertoires of a container carry; cached |
| `grouping` | `SharedClones`, and `group_clones`, which finds them among hundreds of millions of sequences |
| `grouping_loops` | the compiled loops of `grouping` |
| `distinct` | the number of different clones of each repertoire, shared or not; the abundance of each |
| `clone_set` | `CloneSet`: some clones by their content, and which of them a repertoire of any container carries |
| `neighbours` | the sequences that equal a clone of a `CloneSet`, or differ by a substitution that its match allows |
| `wildcards` | wildcard clones, in which any residue may stand at one position, and which repertoires share them |
| `clusters` | clusters of clones that are connected by substitutions, and which repertoires share them |
| `hashed_sequences` | the sequences of a cohort with their hashes, in which `wildcards` and `clusters` search |
"""
