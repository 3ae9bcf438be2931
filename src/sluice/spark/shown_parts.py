"""Parts of results on their way to where they are shown: whether they are there and whole, and what is left over."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sluice.model.codec import checksum
from sluice.model.epoch.attempt import epoch_of
from sluice.model.epoch.results import Part, Results
from sluice.model.errors import CheckpointError, StorageError
from sluice.spark.sink_log import OLDER_COPY
from sluice.state.files.storage import Storage


def check_parts(storage: Storage, directory: str, parts: tuple[Part, ...], thoroughly: bool = False) -> set[str]:
    """See that those parts of an epoch that lie in a directory are as their site wrote them: by their size, or
    thoroughly. Returns their names."""
    if not parts:
        return set()
    here = {entry.name: entry.size for entry in storage.files(directory)}
    for part in parts:
        name = f"{directory}/{part.name}".lstrip("/")
        if part.name not in here:
            continue  # it is elsewhere, or gone
        is_whole = here[part.name] == part.bytes
        if not is_whole or (thoroughly and checksum(storage.read(name)) != part.checksum):
            raise StorageError(
                f"{storage.path(name)} is damaged ({here[part.name]:,} bytes, {part.bytes:,} were written): these "
                "are results of a committed epoch that were not shown yet, and they are not shown. Restore the file, "
                "or start anew with a new checkpointLocation and path"
            )
    return here.keys() & {part.name for part in parts}


def check_unshown(
    storage: Storage, waiting: str, shown_in: Iterable[str], results: Results, thoroughly: bool = False
) -> None:
    """See that all parts of an epoch are there, whole: they wait, or some were renamed before their driver died. Only
    then the directories are listed in which all results lie that were ever shown."""
    here = check_parts(storage, waiting, results.parts, thoroughly)
    if len(here) < len(results.parts):
        for directory in shown_in:
            here |= check_parts(storage, directory, results.parts, thoroughly)
    for part in results.parts:
        if part.name not in here:
            raise StorageError(
                f"{storage.path(f'{waiting}/{part.name}')} is gone: these are results of epoch {results.epoch}, "
                "which is committed, and they were not shown yet. Restore the file, or start anew with a new "
                "checkpointLocation and path"
            )


def refuse_later(where: str, names: Iterable[str], newest: int) -> None:
    """Refuse to go on where results of later epochs than the checkpoint has are shown already."""
    shown = max((epoch_of(name) for name in names if name.startswith("part-")), default=-1)
    if shown > newest:
        raise CheckpointError(
            f"{where!r} shows results of epoch {shown}, the checkpoint only goes to epoch {newest}: {OLDER_COPY}"
        )


def remove_waiting(
    storage: Storage, directory: str, parts: tuple[Part, ...], is_left_over: Callable[[str], bool]
) -> None:
    """Remove parts that wait and are left over, except `parts`."""
    committed = {p.name for p in parts}
    waiting = [entry.name for entry in storage.files(directory)]
    storage.delete_all(f"{directory}/{name}" for name in waiting if name not in committed and is_left_over(name))
