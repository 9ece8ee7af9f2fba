#!/usr/bin/env bash
# Create .venv from the pinned requirements. Runs again without harm. UV_TORCH_BACKEND=cpu or =auto chooses torch's build.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-$(bash envs/python.sh)}"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || {
  echo "zerodr needs Python 3.11, 3.12 or 3.13, found $("$python" --version 2>&1). Install one, with your system or by: uv python install 3.13. Then run: make PYTHON=/path/to/python3.13 mini" >&2
  exit 1
}
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check "$(grep -o '^uv==[0-9.]*' envs/requirements.txt)"
export UV_COMPILE_BYTECODE=1 UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}"
[ -n "$UV_FIND_LINKS" ] || unset UV_FIND_LINKS
torch=$(grep '^torch==' envs/requirements.lock)
# Without an NVIDIA driver the build for processors serves, a fraction of the download. Nodes of a cluster may have what its login node
# lacks; folders of wheels are someone's choice; where torch's registry cannot be reached (a dry run asks), the usual one is asked.
if [ -z "${UV_TORCH_BACKEND:-}${UV_FIND_LINKS:-}" ] && ! command -v nvidia-smi sbatch >/dev/null && [ ! -e /proc/driver/nvidia ] &&
  UV_HTTP_RETRIES=0 UV_HTTP_TIMEOUT=10 .venv/bin/uv pip install --python .venv --no-deps --quiet --dry-run --torch-backend cpu "$torch" 2>/dev/null; then
  export UV_TORCH_BACKEND=cpu
  echo "No NVIDIA driver here: torch's build for processors. To choose: UV_TORCH_BACKEND=auto make"
fi
.venv/bin/uv pip install --python .venv --no-deps --quiet -r envs/requirements.lock
# What torch's build for this machine needs beside the lock (CUDA libraries, pinned by torch itself); nothing for a CPU build.
.venv/bin/uv pip install --python .venv --quiet --constraint envs/requirements.lock "$torch"
.venv/bin/uv pip install --python .venv --no-deps --quiet -e .
echo "The environment is ready: $(.venv/bin/python --version), $(.venv/bin/python -c 'import torch; print("torch", torch.__version__)')"
