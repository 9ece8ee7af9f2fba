"""Files that stages write - atomic publication, manifests, digests, lineage records, codecs."""
