"""Publish the files of stages: atomic writes, manifests, digests, lineage records, codecs."""
