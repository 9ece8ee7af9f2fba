"""MoMA: queries are augmented with documents of memories that are plugged in.

In the order of the method: `settings`, `checks` (which memories), `items`, `plan`;
`grounding`, `fid_attention`, `fusion_encoder`, `fused_vectors` (model); `folders` (both components);
`embed_memory`, `search_memory`, `embed_fused` (what augments queries); `training` (what a fine-tuning stage gets),
`measure_attention`, `losses`, `augmenter` (learning); `retriever` (from Python), `lookup`, `live_queries` (from the
page); `report`.
"""
