"""Turn a file of text, Markdown, HTML, Word or PDF into headings and paragraphs."""

import codecs
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from html import escape
from typing import Any
from xml.parsers.expat import ExpatError

import yaml

from zerodr.collections.archives import BROKEN, marked_encoding
from zerodr.collections.cutting import Block

BREAKS = {
    *"p div section article main li ul ol dl dt dd tr table thead tbody pre blockquote figcaption br hr".split(),
    *"header form fieldset legend details summary address caption label option".split(),
}
BREAKING = ", ".join(sorted(BREAKS))
HEADINGS = {f"h{level}": level for level in range(1, 7)}
SKIPPED = (
    "script, style, noscript, template, nav, header, footer, aside, svg, button, form, select, textarea, title, "
    "[hidden], [aria-hidden=true]"
)
TITLED = ", ".join(HEADINGS)
CELLS = "td > p:only-child, th > p:only-child"  # of Word and wikis: cells of a row stay in one line
WORD_STYLES = "p[style-name='Title'] => h1:fresh"  # next to those that mammoth knows
FOLDERS = ", ".join([*(f"{tag} [aria-controls]" for tag in (*HEADINGS, "dt")), "[role=tab][aria-controls]"])
HOLDS_TEXT = f"{TITLED}, p, li, table, article, section, blockquote, pre"  # a form with none is a search field
# HTML in Markdown that is one line's markup; any other tag in a line, as `List<String>` or `<form>`, is text.
INLINE = {
    *"a abbr b br center cite code del dfn em font i img ins kbd mark p q s samp small span strike strong".split(),
    *"sub summary sup time tt u var wbr".split(),
}
SWALLOWING = "script style noscript template nav header footer aside svg button form select textarea title".split()
TAG = re.compile(r"<(/?)([a-zA-Z][\w.:-]*)[^<>]*>")
VOID = {*"area base br col embed hr img input link meta param source track wbr".split()}  # HTML closes none of them
CLOSED = re.compile(r"""<([a-zA-Z][\w:.-]*)((?:\s+[^\s<>/=]+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*)\s*/>""")
SAMPLE_BYTES = 1 << 16
SENTENCE_END = re.compile(r"[.!?…。！？｡][\"'”’)\]]*(?:\s|$)|[。！？｡]")
# Letters and signs of Western Europe: few words decide badly between neighbouring encodings.
WESTERN = {
    letter.encode("cp1252")
    for letter in "àâãäåæçéèêëíìîïñóòôõöøœúùûüáßÀÂÃÄÅÆÇÉÈÊËÍÎÏÑÓÔÕÖØŒÚÜÁ€£§°«»„“”‘’–—…·•¿¡\u00a0½²³×®©™ªº´±µ"
}
NO_ORDINAL = re.compile(rb"[\xaa\xba][A-Za-z\xc0-\xff]")  # a letter of Romanian, where Western texts have 1º and 1ª
HUNGARIAN = {letter.encode("cp1250") for letter in "áéíóöőúüűÁÉÍÓÖŐÚÜŰ"}
LONG, SHORT = {b"\xf5", b"\xd5"}, {b"\xf6", b"\xfc"}  # its ő, where Portuguese and Estonian have õ; its ö and ü
ENCODINGS = "cp1252 cp1250 cp1251 koi8_r cp1253 cp1254 cp1255 cp1256 cp1257 gb18030 big5 cp932 euc_jp cp949".split()
JAPANESE = re.compile(rb"\x1b\$[@B]")  # begins Japanese letters in old mails and texts
CHARSET = re.compile(rb"(?i)(?:charset|encoding)\s*=\s*[\"']?\s*([a-z0-9_:.-]+)")
# What browsers read under these names, and writers mean: the larger table of a vendor (encoding.spec.whatwg.org).
BROWSERS = {"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "shift_jis": "cp932", "euc_kr": "cp949"}
BROWSERS |= {"gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs", "tis-620": "cp874", "iso8859-11": "cp874"}
SEVEN_BITS = ("iso2022", "hz")  # such bytes are UTF-8 as well, of other letters
BAD = "\ufffd"
HYPHEN = re.compile(r"[\x02\u00ad\ufffe]\n?|(?<=[a-zà-ÿ])-\n(?=[a-zà-ÿ])")  # pdfium writes a broken word's as \x02
# Soft hyphens and marks of direction, which BM25 takes for letters of a word; joiners of emoji and Persian stay.
UNSEEN = re.compile("\u00ad\n?|[\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
LEADERS = re.compile(r"(?: ?\.){4,}")  # of a table of contents
FOLIO = re.compile(
    r"(?i)\b(?:page|seite|p[aá]gin[ae]|s\.|p\.|pag\.)\s*\d+(?:\s*(?:of|von|de|di|sur|van|/)\s*\d+)?"
    r"|^\W*\d+(?:\s*(?:of|von|de|di|sur|van|/)\s*\d+)?\W*$|^\d+\s*[|·•–—]|[|·•–—]\s*\d+$"
)  # the number of a page, which alone may differ between lines at the edges; "Invoice 1003" is none
PICTURE = 3  # pdfium's FPDF_PAGEOBJ_IMAGE
RUNNING = 3  # lines at the edge of a page that at least so many pages, and half of them, repeat are no text


class Unreadable(Exception):
    """A file whose text can't be read, with the reason."""


def blocks_of(ending: str, content: bytes) -> tuple[list[Block], str]:
    """Return the headings and paragraphs of a file, and a remark on how it was read; mostly an empty one.

    Args:
        ending: of its name, such as `.pdf`.

    Raises:
        Unreadable: it is damaged, locked by a password, or binary.
    """
    if ending == ".pdf":
        return _pdf(content)
    if ending == ".docx":
        return list(html_blocks(_word(content))), ""
    if ending in (".html", ".htm", ".xhtml"):
        text, remark = decode(_as_declared(content))
        is_xml = ending == ".xhtml" or text.lstrip().startswith("<?xml")
        return list(html_blocks(_xml_as_html(text) if is_xml else text)), remark
    text, remark = decode(content)
    if ending in (".md", ".markdown"):
        title, body = _metadata(text)
        blocks = list(html_blocks(_rendered(body)))
        named = [Block(1, title)] if title and not any(block.level == 1 for block in blocks) else []
        return named + blocks, remark
    return [Block(0, _paragraph(lines)) for lines in re.split(r"\n\s*\n", text) if lines.strip()], remark


def _paragraph(text: str) -> str:
    """Join wrapped lines; those of a text without the end of a sentence, as a transcript or a list, stay.

    >>> _paragraph("one line\\n and another."), _paragraph("A: yes\\nB: no\\nA: why")
    ('one line and another.', 'A: yes\\nB: no\\nA: why')
    """
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return (" " if SENTENCE_END.search(text) else "\n").join(line for line in lines if line)


def _xml_as_html(text: str) -> str:
    """Write XML's short forms as HTML has them, where `<script/>` and `<title/>` hold all that follows.

    >>> _xml_as_html('<a id="x > y"/>one<br/><![CDATA[1 < 2]]>')
    '<a id="x > y"></a>one<br/>1 &lt; 2'
    """
    first, *more = text.split("<![CDATA[")
    pieces = (piece.partition("]]>") for piece in more)
    text = first + "".join((escape(raw, quote=False) if end else raw) + rest for raw, end, rest in pieces)
    return CLOSED.sub(lambda tag: tag[0] if tag[1].lower() in VOID else f"<{tag[1]}{tag[2]}></{tag[1]}>", text)


def _as_declared(content: bytes) -> bytes:
    """Return a page that is not UTF-8 in UTF-8, where it names its encoding and has no other."""
    declared = CHARSET.search(content[:2048])
    try:
        encoding = codecs.lookup(declared[1].decode("ascii")).name if declared else "utf-8"
        if not encoding.startswith(SEVEN_BITS):
            content.decode("utf-8")
            return content
    except LookupError:
        return content
    except UnicodeDecodeError:
        pass
    for name in (BROWSERS.get(encoding, encoding), encoding):  # cp1252 lacks five bytes that iso8859-1 has
        try:
            return content.decode(name).encode()
        except (LookupError, ValueError):
            continue
    return content


def _metadata(text: str) -> tuple[str, str]:
    """Return the title in the YAML block at the head of Markdown, and the text without the block.

    >>> _metadata("---\\ntitle: Pumps\\n---\\nTheir valves."), _metadata("---\\nA rule.\\n\\n---\\nText.")[0]
    (('Pumps', 'Their valves.'), '')
    """
    match = re.match(r"---\n(.*?)\n?(?:---|\.\.\.)[ \t]*(?:\n|$)", text, re.DOTALL)
    try:
        fields = yaml.safe_load(match[1]) if match else None
    except (yaml.YAMLError, ValueError):
        return "", text
    if not match or not isinstance(fields, dict):
        return "", text  # a rule, and text below it
    title = fields.get("title")
    return " ".join(str(title).split()) if isinstance(title, str | int | float) else "", text[match.end() :]


def _rendered(markdown: str) -> str:
    """Render Markdown; a tag in a line that is no markup there, or in a block that nothing closes, is text."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = parser.parse(markdown)
    blocks = "".join(token.content for token in tokens if token.type == "html_block")
    counts = Counter((end, name.lower()) for end, name in TAG.findall(blocks))
    loose = {name for name in SWALLOWING if counts["", name] != counts["/", name]}
    for token in tokens:
        if token.type == "html_block":
            token.content = _as_text(token.content, lambda name: name in loose)
        for child in token.children or ():
            if child.type == "html_inline":
                child.content = _as_text(child.content, lambda name: name not in INLINE)
    return parser.renderer.render(tokens, parser.options, {})


def _as_text(html: str, is_text: Callable[[str], bool]) -> str:
    """Write the tags of some names, in small letters, as text."""
    return TAG.sub(lambda tag: tag[0].replace("<", "&lt;") if is_text(tag[2].lower()) else tag[0], html)


def decode(content: bytes) -> tuple[str, str]:
    """Decode a text, by what its bytes look like where they are not UTF-8, which the remark says.

    Raises:
        Unreadable: they are no text.
    """
    encoding, remark = encoding_of(content)
    text = content.decode(encoding, "replace")
    return UNSEEN.sub("", _lines(text.replace(BAD, "") if encoding == "utf-8" else text)), remark


def encoding_of(content: bytes) -> tuple[str, str]:
    """Return the encoding of a text, and a remark where it is a guess, by its first lines that are no ASCII.

    Raises:
        Unreadable: it is no text.
    """
    if marked := marked_encoding(content):
        return marked, ""
    if b"\0" in content[:SAMPLE_BYTES]:
        raise Unreadable("is binary, no text")
    if JAPANESE.search(content):  # of seven bits, so it is UTF-8 as well
        return "iso2022_jp", "read as iso2022_jp, which was guessed"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)
        return "utf-8", ""
    except UnicodeDecodeError:
        text = content.decode("utf-8", "replace")
        if len(text.encode()) - len(text) > 4 * text.count(BAD):  # more good characters than bad ones
            return "utf-8", "bytes that are no UTF-8 are left out"
        signs = set(re.findall(rb"[\x80-\xff]", content))
        hungarian = signs & LONG and signs & SHORT and {letter for letter in signs if letter >= b"\xc0"} <= HUNGARIAN
        if signs <= WESTERN and not hungarian and not NO_ORDINAL.search(content):
            return "cp1252", "read as cp1252, which was guessed"
        start = b"".join(re.findall(rb"[^\n]*[\x80-\xff][^\n]*\n?", content))[:SAMPLE_BYTES]
        from charset_normalizer import from_bytes

        best = from_bytes(start, cp_isolation=[*ENCODINGS]).best()
        if best is None:
            raise Unreadable("is no text in a known encoding (save it as UTF-8)") from None
        return best.encoding, f"read as {best.encoding}, which was guessed"


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def html_blocks(text: str) -> Iterator[Block]:
    """Return the headings and paragraphs of a web page, without menus and scripts; cells of a table's row in one.

    The title of a page without a heading of the first level is one.
    """
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(text)
    if tree.body is None:
        return
    title = tree.css_first("head > title")
    if title is not None and tree.css_first("h1") is None and (named := " ".join(UNSEEN.sub("", title.text()).split())):
        yield Block(1, named)
    folded = {name for node in tree.css(FOLDERS) for name in str(node.attributes["aria-controls"]).split()}
    for node in tree.css(SKIPPED):
        if node.parent is not None and node.tag not in ("html", "body") and not _holds_text(node, folded):
            node.decompose()  # scripts show a page that hides as a whole
    for node in tree.css(CELLS):
        node.insert_before(" ")
        node.insert_after(" ")
        node.unwrap()
    held: list[str] = []

    def flush() -> Iterator[Block]:
        paragraph = " ".join("".join(held).split())
        held.clear()
        if paragraph.strip(" |"):
            yield Block(0, paragraph.strip(" |"))

    # A stack of its own: pages of generators nest deeper than Python's calls may.
    open_nodes = [("", tree.body.iter(include_text=True))]
    while open_nodes:
        tag, children = open_nodes[-1]
        child = next(children, None)
        if child is None:
            open_nodes.pop()
            if tag in BREAKS:
                yield from flush()
            elif tag in ("td", "th"):
                held.append(" | ")
            continue
        tag = str(child.tag)
        if tag == "-text":
            held.append(UNSEEN.sub("", child.text_content or ""))
        elif tag in HEADINGS:
            yield from flush()
            for node in child.css(BREAKING):
                node.insert_before(" ")
            if heading := " ".join(UNSEEN.sub("", child.text()).split()):
                yield Block(HEADINGS[tag], heading)
        else:
            if tag in BREAKS:
                yield from flush()
            open_nodes.append((tag, child.iter(include_text=True)))
    yield from flush()


def _holds_text(node: Any, folded: set[str]) -> bool:
    """True of a page's head with a title, an article's with a heading, a form around text, and what a click shows.

    Args:
        folded: ids of the parts that a click on a heading or a tab shows.
    """
    if node.tag == "button":  # FAQs: a click on the question, which is all of the heading, shows the answer
        return node.parent.tag in (*HEADINGS, "dt") and node.text().strip() == node.parent.text().strip()
    if node.tag == "header":
        inside = node.parent.tag in ("article", "main", "section")
        return node.css_first(TITLED if inside else "h1") is not None
    if node.tag == "form":
        return node.css_first(HOLDS_TEXT) is not None
    facts = node.attributes
    return facts.get("role") == "tabpanel" or facts.get("hidden") == "until-found" or facts.get("id") in folded


def _word(content: bytes) -> str:
    import mammoth

    try:
        return mammoth.convert_to_html(io.BytesIO(content), style_map=WORD_STYLES).value
    except RuntimeError as error:  # zipfile's, of a password or a method of compression that it lacks
        raise Unreadable(f"can't be unpacked ({error})") from error
    except (*BROKEN, ExpatError, LookupError, ValueError, TypeError, AttributeError, OSError) as error:
        raise Unreadable(f"is no Word file, or damaged ({type(error).__name__})") from error


def _page_text(page: Any) -> str:
    """Return the text inside a page's edges, where pdfium loses the ends of lines that are turned."""
    inside, whole = page.get_text_bounded(), page.get_text_range()
    return whole if len("".join(inside.split())) == len("".join(whole.split())) else inside


def _is_picture(page: Any) -> bool:
    return next(page.get_objects([PICTURE]), None) is not None


def _pdf(content: bytes) -> tuple[list[Block], str]:
    """Return the text of each page; the remark counts pages of pictures without text, of all: `9 of 10`."""
    import pypdfium2

    pages, pictures = list[str](), 0
    try:
        with pypdfium2.PdfDocument(content) as document:
            for page in document:
                pages.append(_page_text(page.get_textpage()))
                pictures += not pages[-1].strip() and _is_picture(page)
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        raise Unreadable("is locked by a password" if locked else f"is damaged, or no PDF ({error})") from error
    lines = [[line.strip() for line in _lines(page).split("\n") if line.strip()] for page in pages]
    edges = Counter(key for page in lines for key in {FOLIO.sub("0", line) for line in (page[:1] + page[-1:])})
    running = {key for key, count in edges.items() if count >= max(RUNNING, len(pages) / 2)}
    blocks = []
    for number, page in enumerate(lines, 1):
        inner = [
            line for n, line in enumerate(page) if n not in (0, len(page) - 1) or FOLIO.sub("0", line) not in running
        ]
        if text := " ".join(LEADERS.sub(" ", HYPHEN.sub("", "\n".join(inner))).split()):
            blocks.append(Block(0, text, number))
    return blocks, f"{pictures} of {len(pages)}" if pictures else ""
