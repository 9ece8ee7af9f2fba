"""Disentangled dense retrieval: a relevance module (REM), trained once, on any corpus' domain module (DAM).

In order of the method: `settings`, `checks`, `items`, `plan`; `inserting` (LoRA and parallel adapters), `folders`
(their files), `folding` (a plain model of both), `modular` (model of both, stage `assemble`); `training` (what a
fine-tuning stage gets); `report`.
"""
