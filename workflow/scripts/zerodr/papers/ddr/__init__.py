"""Disentangled dense retrieval: a relevance module (REM), trained once, on any corpus' domain module (DAM).

In order of the method: `settings`, `checks`, `items`, `plan`; `inserting` (LoRA and parallel adapters), `rem_files`,
`folding` (a plain model of both), `modular`; `training` (what a fine-tuning stage gets); `folders` (its model folders),
`assemble`; `report`.
"""
