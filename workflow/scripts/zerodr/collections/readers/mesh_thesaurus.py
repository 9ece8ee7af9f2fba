"""Read MeSH headings from two tables of R: `data_mesh_thesaurus.rds` (terms) and `data_mesh_trees.rds` (positions).

A descriptor is a document `mesh-<DescriptorUI>`. Its text is composed from its name, its first 25 entry terms and its
paths in the trees, category first, without the tree's root.
"""

from collections.abc import Iterator
from itertools import islice

from zerodr.collections.archives import damage_errors, find
from zerodr.collections.readers.base import Document, Reader
from zerodr.collections.readers.rds import read_table

ENTRY_TERMS = 25


class MeshThesaurusReader(Reader):
    """Reader of format `mesh-thesaurus`."""

    def _rows(self, name: str, *columns: str) -> Iterator[tuple[str, ...]]:
        member = str(find(self.archive, name))
        with damage_errors(self.archive.name), self.archive.open(member) as stream:
            table = read_table(stream, f"{self.archive.name}/{member}")
        return zip(*(table[column] for column in columns), strict=True)

    def documents(self) -> Iterator[Document]:
        """Read the descriptors. `line` is the number of the descriptor."""
        file = f"{self.archive.name}/data_mesh_thesaurus.rds"
        columns = ("DescriptorUI", "DescriptorName", "TermName", "IsPermutedTermYN")
        names: dict[str, str] = {}
        terms: dict[str, dict[str, None]] = {}
        for key, name, term, permuted in self._rows("data_mesh_thesaurus.rds", *columns):
            names[key] = name
            entries = terms.setdefault(key, {})
            if permuted == "N" and term != name:
                entries[term] = None
        paths = self._paths()
        for line, (key, name) in enumerate(names.items(), start=1):
            text = f"{name} is a medical subject heading."
            if terms[key]:
                text += f" Also called {'; '.join(islice(terms[key], ENTRY_TERMS))}."
            if key in paths:
                text += f" Found under {' | '.join(paths[key])}."
            yield Document(f"mesh-{key}", name, text, file, line)

    def _paths(self) -> dict[str, dict[str, None]]:
        """Return the paths of each descriptor, each once."""
        rows = list(self._rows("data_mesh_trees.rds", "DescriptorUI", "DescriptorName", "tree_location", "cats"))
        names = {location: name for _, name, location, _ in rows}
        paths: dict[str, dict[str, None]] = {}
        for key, _, location, category in rows:
            numbers = location.split(".")
            above = (".".join(numbers[:depth]) for depth in range(2, len(numbers) + 1))
            steps = [category, *(names[number] for number in above if number in names)]
            paths.setdefault(key, {})[" > ".join(steps)] = None
        return paths
