"""MoMA: queries are augmented with documents of memories that are plugged in.

In the order of the method: `settings`, `checks`, `items`, `mixtures` (which memories), `plan`;
`grounding`, `fid_attention`, `fusion_encoder`, `decoder_once`, `state_cache`, `fused_vectors`, `components` (model);
`embed_fused`, `search_memory` (what augments queries); `training` (what a fine-tuning stage gets), `measure_attention`,
`attention_labels`, `mine_memories`, `losses`, `episode` (learning); `folders` (exported models), `retriever` (from
Python), `lookup`, `live_queries` (from the page); `measure_shares`, `report`.
"""
