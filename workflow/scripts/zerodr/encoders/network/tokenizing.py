"""Options of tokenizers, and whose turn it is."""

import threading

TOKENIZING = threading.Lock()  # a tokenizer serves one thread at a time, with all cores
BARE = dict.fromkeys(
    "add_special_tokens return_attention_mask return_token_type_ids truncation padding verbose".split(), False
)
"""For the ids of whole texts, without special tokens and without anything else."""
