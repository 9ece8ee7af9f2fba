"""Ask the model hub through huggingface_hub: commits and snapshots, each refusal as one sentence."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zerodr.encoders.folder import checkpoint
from zerodr.encoders.folder.foreign import ModelFolder, check_adapter, check_kind
from zerodr.errors import ModelError

logging.getLogger("httpx2").setLevel(logging.WARNING)  # huggingface_hub's client writes a line a request
logging.getLogger("huggingface_hub.file_download").setLevel(logging.ERROR)  # and two lines a file and attempt
PATIENCE_S = 20.0
EXCEPT = ["onnx/*", "openvino/*"]
PICKLED = (".bin", ".pt", ".pth", ".ckpt")


def ask_hub(name: str, revision: str) -> str | None:
    """Ask the hub for the commit that a model's revision is; None where it can't be reached.

    Raises:
        ModelError: the hub has no such model or revision, asks for a licence or token, or has no safetensors.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    try:
        info = HfApi().model_info(name, revision=revision, timeout=PATIENCE_S)
        _refuse_pickled(name, [file.rfilename for file in info.siblings or ()])
        if info.gated:  # facts of such a model are public, its files are not
            HfApi().file_exists(name, "config.json", revision=info.sha)
        return str(info.sha)
    except (OSError, ValueError, HTTPError) as error:
        if (refusal := refusal_of(name, revision, error)) is not None:
            raise refusal from None
    return None


def _refuse_pickled(name: str, files: Sequence[str]) -> None:
    """Raise ModelError for a repository whose weights are pickled alone."""
    pickled = [file for file in files if "/" not in file and file.endswith(PICKLED)]
    if pickled and not any(file.endswith(".safetensors") for file in files):
        problem = f"has pickled weights alone ({pickled[0]}), which may run code; expected safetensors"
        step = f"hf download {name} --local-dir FOLDER; zerodr convert FOLDER NEW; name NEW in the recipe"
        raise ModelError(name, problem, step)


def cached_commit(name: str) -> str:
    """Return the commit of `main` in the hub cache.

    Raises:
        ModelError: the cache does not hold the model.
    """
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(name, "config.json")
    if not isinstance(path, str):
        problem = "has no revision, the hub can't be reached, and the hub cache does not hold the model"
        raise ModelError(name, problem, "run once where the hub can be reached, or name a folder in its place")
    return Path(path).parent.name  # snapshots/<commit>/config.json


def check_hub_model(name: str, revision: str | None, offline: bool) -> None:
    """Refuse another kind of model than a bi-encoder by its json files, before its weights are downloaded.

    Raises:
        ModelError: says what it is.
    """
    folder, _ = fetch_model(name, revision, offline, ("*.json",))
    check_adapter(folder)
    check_kind(ModelFolder(folder))


def fetch_model(
    name: str, revision: str | None, offline: bool, patterns: Sequence[str] = checkpoint.PATTERNS
) -> tuple[Path, str]:
    """Download a model's files, or find them in the hub cache; return their folder and commit.

    Args:
        name: organisation/name.
        revision: commit, or None for the newest.
        offline: never ask the hub.
        patterns: of the files.

    Raises:
        ModelError: no such model or revision, or the hub can't be asked.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError

    options: dict[str, Any] = {"allow_patterns": list(patterns), "local_files_only": offline}
    try:
        folder = Path(snapshot_download(name, revision=revision, ignore_patterns=EXCEPT, **options))
    except (LocalEntryNotFoundError, HTTPError) as error:
        if (refusal := refusal_of(name, revision, error)) is not None:
            raise refusal from None
        reason = "offline is true" if offline else "the hub can't be reached"
        step = "fetch it once with offline: false" if offline else "check the network"
        problem = f"is no folder, is not in the hub cache, and {reason}"
        raise ModelError(name, problem, f"{step}, or give a folder") from None
    except (OSError, ValueError) as error:
        problem = f"can't be downloaded from the hub ({_first_line(error)})"
        unknown = ModelError(name, problem, "check name, revision and access")
        raise refusal_of(name, revision, error) or unknown from None
    return folder, folder.name  # snapshots/<commit>


def refusal_of(name: str, revision: str | None, error: Exception) -> ModelError | None:
    """Say what the hub refused; None where it gave no answer."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    from zerodr.config.pins import no_repository

    page = f"{constants.ENDPOINT}/{name}"
    if isinstance(error.__cause__, HfHubHTTPError):  # a file that is not in the cache, and why the hub gave none
        error = error.__cause__
    if isinstance(error, HFValidationError):
        return no_repository(name)
    if isinstance(error, GatedRepoError):
        return ModelError(
            name, "asks to accept its licence", f"accept it at {page}, then: hf auth login (or set HF_TOKEN)"
        )
    if isinstance(error, RepositoryNotFoundError):
        problem = "is not on the hub, or is private and the token is missing"
        return ModelError(name, problem, f"see {page}; for a private model: hf auth login (or set HF_TOKEN)")
    if isinstance(error, RevisionNotFoundError):
        step = f"zerodr pin --renew {name} locks today's, and what starts from the model is made anew"
        return ModelError(name, f"the hub no longer has its commit {revision}", step)
    if isinstance(error, HfHubHTTPError) and error.response is not None and error.response.status_code < 500:
        return ModelError(name, f"the hub refuses ({_first_line(error)})", f"see {page}")
    return None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
