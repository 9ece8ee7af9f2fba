"""Run networks on the CPU in float32 as OpenVINO graphs. A model folder is converted once, for all jobs.

`results/.state/graphs` holds a folder for each content of a model folder: the graph from token ids to vectors, and the
tokenizer. So a job that embeds imports neither torch nor transformers, which takes seconds. A graph appears whole,
under a lock, and is made again where files of it are missing or damaged. It may be deleted at any time. `ship_graph`
gives an exported folder its graph, so that a program without torch and transformers embeds queries.
"""

import importlib
import json
import logging
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from zerodr.artifacts.machine import take_lock
from zerodr.artifacts.manifest import MANIFEST, check_manifest, file_digest, link_or_copy, object_digest, seal_folder
from zerodr.artifacts.record import STATE, write_json
from zerodr.encoders.folder.contract import SIDES, EncoderContract, insert_modules, read_contract
from zerodr.encoders.network.loading import short
from zerodr.encoders.network.tokenizing import StoredTokenizer, stored_facts
from zerodr.errors import MachineError, ModelError

log = logging.getLogger("zerodr")
GRAPHS = STATE / "graphs"
FORM = 1  # of what is stored; raise it when the conversion changes
TELEMETRY = "openvino_telemetry"
FIRST_USE, STARTING = threading.Lock(), threading.Lock()
NETWORK, WEIGHTS, FACTS = "graph.xml", "graph.bin", "facts.json"
SHIPPED = "graph"  # subfolder of an exported folder
READ = (".json", ".safetensors", ".txt", ".model")  # suffixes of files that vectors depend on
NOT_READ = (MANIFEST, "lineage.json")
SHARE = 0.1  # of the disk space that is free without graphs: more is not stored
IDLE_S = 86_400  # a graph that was not used for so long may be deleted for another one
NEAR = 1e-4  # of the largest component: a graph's vectors may be so far from the network's
PROBE = (192, 3, 1)  # lengths of the texts of the comparison; padding is longer than any window of local attention
FAILURES = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError)


def openvino() -> Any:
    """Import OpenVINO without the package that sends reports, where somebody installed that."""
    sys.modules.setdefault(TELEMETRY, None)  # type: ignore[arg-type]
    module = importlib.import_module("openvino")
    with FIRST_USE:  # its bindings look numpy up at the first use; two threads that do so at once wait for each other
        _ = module.Tensor(np.zeros(1, np.float32)).data
    return module


def core() -> Any:
    """Return OpenVINO's one core of the process, which lives as long as it.

    A core's CPU plugin sets the thread's stack of signals, and takes that away at its end. After two that ended in the
    order of their beginning, the first signal (Ctrl-C, SIGTERM) ended the process with a segmentation fault.
    """
    with STARTING:
        return _started()


@cache
def _started() -> Any:
    return openvino().Core()


class Graph:
    """`Graph(network)(ids, mask)`: the outputs of a network, computed by OpenVINO.

    A call computes on one thread. As many calls run at once as `prepare` was called for.

    Args:
        network: of OpenVINO.
        rows: of its embedding table.
    """

    def __init__(self, network: Any, rows: int) -> None:
        self._network, self._rows = network, rows
        self._threads, self._lock = 0, threading.Lock()
        self._idle: SimpleQueue = SimpleQueue()

    def prepare(self, threads: int) -> None:
        """Compile the network for so many calls at once."""
        with self._lock:
            if threads <= self._threads:
                return
            options = {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": threads, "INFERENCE_NUM_THREADS": threads}
            # Without it each process binds its threads to the same first cores.
            options |= {"ENABLE_CPU_PINNING": False, "ENABLE_HYPER_THREADING": True}
            compiled = core().compile_model(self._network, "CPU", options)
            idle: SimpleQueue = SimpleQueue()
            for _ in range(threads):
                idle.put(compiled.create_infer_request())
            self._idle, self._threads = idle, threads

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        """Compute the first output. inputs: arrays (B, L) int64 in the order of the network's inputs; token ids first.

        Raises:
            ModelError: a token has no row in the embedding table. OpenVINO would take zeros.
        """
        if (largest := int(inputs[0].max())) >= self._rows:
            problem = f"its embedding table has {self._rows} rows, none for token {largest}"
            raise ModelError(
                "the model", problem, "use the model's own tokenizer, or resize its embeddings and save it"
            )
        self.prepare(1)
        idle = self._idle
        request = idle.get()
        try:
            return request.infer(inputs)[0]
        finally:
            idle.put(request)


@dataclass(frozen=True)
class Converted:
    """What is stored of a model folder.

    Attributes:
        graph: None where OpenVINO can't be used.
        reason: for that, in a few words.
        tokenizer: None where transformers must load it.
    """

    graph: Graph | None
    reason: str
    tokenizer: StoredTokenizer | None


def open_converted(folder: Path, contract: EncoderContract, aside: Collection[str] = ()) -> Converted:
    """Read what is stored of a model folder's content, or comes with it; convert the folder where nothing is.

    Args:
        folder: of the model.
        contract: its own.
        aside: names of files that no vector depends on.

    Raises:
        MachineError: it must be converted, and torch is missing.
    """
    if shipped := _shipped(folder, contract):
        return shipped
    require_torch(folder)
    root = graphs_folder()
    home = root / _key(folder, contract, _versions(), aside)
    converted = _read(home)
    if converted is None:
        try:
            root.mkdir(parents=True, exist_ok=True)
            stream = open(root / "lock", "a", encoding="utf-8")
        except OSError as error:
            return _convert_aside(folder, contract, str(error))
        with stream:
            take_lock(stream, wait=True)
            converted = _read(home) or _make(folder, contract, home)
    return converted


def _key(folder: Path, contract: EncoderContract, versions: Mapping[str, str], aside: Collection[str] = ()) -> str:
    return object_digest({"files": content(folder, contract, aside), "form": FORM, **versions})[:32]


def ship_graph(folder: Path, aside: Collection[str] = ()) -> bool:
    """Put a model folder's graph into the folder; report whether there is one that needs no transformers.

    Call it when all other files are there: the graph is that of their content.

    Args:
        folder: of the model.
        aside: names of files that no vector depends on: the graph of a folder that only lacks them is this one's too.
    """
    contract = read_contract(folder)
    if contract.towers == "separate":
        return all([ship_graph(folder / side) for side in SIDES])
    converted = open_converted(folder, contract, aside)
    home = graphs_folder() / _key(folder, contract, _versions(), aside)
    if converted.graph is None or converted.tokenizer is None:
        return False
    key, shipped = _key(folder, contract, {}), folder / SHIPPED
    shipped.mkdir()
    if home.is_dir():
        for name in (NETWORK, WEIGHTS):
            link_or_copy(home / name, shipped / name)
    else:  # there was no room among the graphs
        _convert(folder, contract, home := shipped)
    facts = json.loads((home / FACTS).read_text(encoding="utf-8"))
    write_json(shipped / FACTS, facts | {"content": key})
    return True


def _shipped(folder: Path, contract: EncoderContract) -> Converted | None:
    """Read the graph that comes with a folder; None where there is none, or one of other files."""
    home = folder / SHIPPED
    try:
        facts = json.loads((home / FACTS).read_text(encoding="utf-8"))
        if facts["content"] == _key(folder, contract, {}):
            return _load(home)
        log.warning("%s is of other files than those in %s, and is not used", home, folder)
    except FileNotFoundError:
        pass
    except (OSError, *FAILURES) as error:
        log.warning("%s is damaged, and is not used (%s)", home, short(error))
    return None


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("openvino", "transformers", "tokenizers")}


def require_torch(folder: Path) -> None:
    """Raise MachineError where torch or transformers is missing."""
    if missing := [name for name in ("torch", "transformers") if not find_spec(name)]:
        step = "run: pip install 'path/to/zerodr[torch]'"
        raise MachineError(folder, f"needs {' and '.join(missing)}, because no graph of it is stored", step)


def graphs_folder() -> Path:
    """Return the folder of all graphs: the checkout's, else the user's cache."""
    return GRAPHS if STATE.is_dir() else Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "zerodr"


def content(folder: Path, contract: EncoderContract, aside: Collection[str] = ()) -> list[list[str]]:
    """List name and SHA-256 of each file that vectors depend on; a manifest supplies digests of unchanged files."""
    listed: dict[Path, dict[str, Any]] = {}
    for manifest in (folder / MANIFEST, folder.parent / MANIFEST):
        if not listed and manifest.is_file():
            sealed = manifest.stat().st_mtime_ns
            rows = json.loads(manifest.read_text(encoding="utf-8")).get("files", [])
            listed = {manifest.parent / row["path"]: row | {"sealed": sealed} for row in rows}
    digests = []
    subfolders = [*contract.projections, *filter(None, [contract.modules])]  # an index may be next to them
    files = [*folder.glob("*"), *(path for name in subfolders for path in (folder / name).rglob("*"))]
    for path in sorted(path for path in files if path.suffix in READ and path.is_file()):
        if path.name in NOT_READ or path.name in aside or path.name.startswith("."):
            continue
        row, stat = listed.get(path, {}), path.stat()
        unchanged = row.get("bytes") == stat.st_size and stat.st_mtime_ns <= row.get("sealed", 0)
        digest = row["sha256"] if unchanged and "sha256" in row else file_digest(path)
        digests.append([path.relative_to(folder).as_posix(), digest])
    return digests


def _read(home: Path) -> Converted | None:
    """Read a stored graph; None where there is none, or a damaged one."""
    if not home.is_dir():
        return None
    try:
        if problems := check_manifest(home / MANIFEST):
            raise ValueError(problems[0])
        os.utime(home)
        return _load(home)
    except (OSError, *FAILURES) as error:
        log.warning("%s is damaged and is made again (%s)", home, short(error))
        return None


def _load(home: Path) -> Converted:
    facts = json.loads((home / FACTS).read_text(encoding="utf-8"))
    tokenizer = None if facts["tokenizer"] is None else StoredTokenizer(facts["tokenizer"])
    graph = None if facts["reason"] else Graph(core().read_model(home / NETWORK), facts["rows"])
    return Converted(graph, facts["reason"], tokenizer)


def _make(folder: Path, contract: EncoderContract, home: Path) -> Converted:
    """Convert a folder and store the result, where the disk has room."""
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if not _make_room(home.parent, size):
        return _convert_aside(folder, contract, "graphs may have a tenth of the free disk")
    making = home.with_name(f".{home.name}.making")
    for path in (making, home):
        shutil.rmtree(path, ignore_errors=True)
    try:
        _convert(folder, contract, making)
        seal_folder(making)
        making.replace(home)
    except OSError as error:
        shutil.rmtree(making, ignore_errors=True)
        return _convert_aside(folder, contract, str(error))
    return _load(home)


def _convert_aside(folder: Path, contract: EncoderContract, reason: str) -> Converted:
    """Convert a folder for this process alone: by way of a file, as what is not read from one has other last bits."""
    log.info("the graph of %s is not stored: %s", folder, reason)
    with TemporaryDirectory() as aside:
        _convert(folder, contract, Path(aside))
        return _load(Path(aside))


def _make_room(root: Path, size: int) -> bool:
    """Delete graphs that nobody used for a day, the oldest first, until `size` bytes fit; report whether they do."""
    homes = sorted((path for path in root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    sizes = {home: sum(path.stat().st_size for path in home.iterdir()) for home in homes}
    limit = SHARE * (shutil.disk_usage(root).free + sum(sizes.values()))
    for home in homes:
        if sum(sizes.values()) + size > limit and time.time() - home.stat().st_mtime > IDLE_S:
            shutil.rmtree(home, ignore_errors=True)
            del sizes[home]
    return sum(sizes.values()) + size <= limit


def _convert(folder: Path, contract: EncoderContract, home: Path) -> None:
    """Convert tower and tokenizer of a folder, and write them to `home`.

    Raises:
        ModelError: the folder can't be loaded.
    """
    from zerodr.encoders.inference.peer import PROBES
    from zerodr.encoders.network.tokenizing import load_tokenizer
    from zerodr.encoders.network.towers import load_tower

    started = time.monotonic()
    tokenizer, tower = load_tokenizer(folder), load_tower(folder, contract)
    if contract.modules is not None:
        insert_modules(folder / contract.modules, tower.transformer)
    network, reason = convert_checked(tower, tower.transformer, probe(tower.transformer, contract.max_tokens))
    home.mkdir(exist_ok=True)
    if network is not None:
        openvino().save_model(network, home / NETWORK, compress_to_fp16=False)
    facts = {"reason": reason, "rows": table_rows(tower.transformer), "tokenizer": stored_facts(tokenizer, PROBES)}
    write_json(home / FACTS, facts)
    log.info("%s: converted for OpenVINO in %.1f s%s", folder, time.monotonic() - started, reason and f", but {reason}")


def probe(transformer: Any, max_tokens: int) -> tuple[Any, Any]:
    """Make ids and mask (3, L) int64 that show whether a network was converted well."""
    import torch

    lengths = torch.tensor([max(1, min(length, max_tokens)) for length in PROBE])[:, None]
    mask = (torch.arange(int(lengths.max())) < lengths).long()
    ids = torch.arange(mask.numel()).view(mask.shape) * 7 + 5
    return ids % table_rows(transformer), mask


def table_rows(transformer: Any) -> int:
    """Count the rows of the embedding table of a module of transformers."""
    return int(transformer.get_input_embeddings().num_embeddings)


def convert_checked(module: Any, transformer: Any, inputs: tuple[Any, ...]) -> tuple[Any, str]:
    """Convert a torch module and compare outputs.

    Args:
        module: to convert, in evaluation mode.
        transformer: the network of transformers in it.
        inputs: to compare outputs for, such as `probe` gives.

    Returns:
        the network of OpenVINO, or None; then a reason in a few words.
    """
    import torch

    with torch.inference_mode():
        expected = module(*inputs).numpy()
    usual, reason = transformer.config._attn_implementation, "OpenVINO gives other vectors"
    root = logging.getLogger()
    level = root.level
    example = tuple(x[:, :8].contiguous() for x in inputs)
    failures = (*FAILURES, AssertionError, openvino().frontend.OpConversionFailure)  # of none of their classes
    for attention in (usual, "eager"):  # fused attention gives NaN where a window of local attention is all padding
        try:
            transformer.set_attn_implementation(attention)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of traced conditions: the comparison says whether they matter
                # openvino would trace, and trace again to compare: here outputs are compared below, on more lengths
                traced = torch.jit.trace(module, example, strict=False, check_trace=False)
                network = openvino().convert_model(traced, example_input=example)
            outputs = Graph(network, table_rows(transformer))(*(x.numpy() for x in inputs))
        except failures as error:
            reason = f"OpenVINO does not convert it: {short(error)}"
            continue
        finally:
            transformer.set_attn_implementation(usual)
            root.setLevel(level)  # openvino leaves it at errors where it fails: a program's own lines would be lost
        if bool((abs(outputs - expected) <= NEAR * max(1e-6, float(abs(expected).max()))).all()):
            return network, ""
    return None, reason
