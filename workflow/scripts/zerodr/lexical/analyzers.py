"""Choose Lucene's analyzer of a language."""

from typing import Any

from zerodr.errors import ConfigError, nearest
from zerodr.lexical.jvm import java_class


def analyzer(language: str) -> Any:
    """Return Anserini's analyzer of a language: English with Porter stems for `en`, Lucene's for the others.

    Raises:
        ConfigError: Lucene has no analyzer for the language.
    """
    if language == "en":
        return java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    table = java_class("io.anserini.analysis.AnalyzerMap")
    if not table.analyzerMap.containsKey(language):
        known = [str(key) for key in table.analyzerMap.keySet().toArray()]
        raise ConfigError(f"language {language!r}", "Lucene has no analyzer for it", nearest(language, [*known, "en"]))
    return table.getLanguageSpecificAnalyzer(language)


def analyze(chosen: Any, text: str) -> list[str]:
    """Return the terms of a text, in order."""
    return list(java_class("io.anserini.analysis.AnalyzerUtils").analyze(chosen, text).toArray())
