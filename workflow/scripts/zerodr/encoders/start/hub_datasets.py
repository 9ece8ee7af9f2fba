"""Ask the model hub for data sets through huggingface_hub, each refusal as one sentence."""

from __future__ import annotations

from pathlib import Path

from zerodr.encoders.start.hub import PATIENCE_S, refusal_of
from zerodr.errors import ModelError


def ask_dataset(name: str, revision: str = "main") -> tuple[str, dict[str, str]]:
    """Ask the hub for the commit that a data set's revision is, and its files with their SHA-256, as far as it tells.

    Raises:
        ModelError: the hub has no such data set or revision, asks for a licence or token, or can't be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    try:
        info = HfApi().dataset_info(name, revision=revision, timeout=PATIENCE_S, files_metadata=True)
    except (OSError, ValueError, HTTPError) as error:
        raise _dataset_refusal(name, revision, error) from None
    if info.gated or info.private:  # facts of a gated one are public, its files are not
        problem = f"{'asks to accept its licence' if info.gated else 'is private'}, and a run downloads without a token"
        step = f"hf download {name} --repo-type dataset --local-dir FOLDER; name FOLDER as byo (docs/own-corpus.md)"
        raise ModelError(f"datasets/{name}", problem, step)
    files = {file.rfilename: str(file.lfs.sha256) if file.lfs else "" for file in info.siblings or ()}
    return str(info.sha), files


def fetch_dataset_file(name: str, commit: str, file: str) -> Path:
    """Download a file of a data set.

    Raises:
        ModelError: the hub refuses, or can't be reached.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HTTPError

    try:
        return Path(hf_hub_download(name, file, repo_type="dataset", revision=commit))
    except (OSError, ValueError, HTTPError) as error:
        raise _dataset_refusal(name, commit, error) from None


def _dataset_refusal(name: str, revision: str, error: Exception) -> ModelError:
    unreached = ModelError(f"datasets/{name}", "the hub can't be reached", "check the network, or give --archive")
    return refusal_of(f"datasets/{name}", revision, error) or unreached
