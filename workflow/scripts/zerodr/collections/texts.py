"""Turn a file of text, Markdown, HTML, Word or PDF into headings and paragraphs."""

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterator
from xml.parsers.expat import ExpatError

from zerodr.collections.archives import BROKEN, marked_encoding
from zerodr.collections.cutting import Block

BREAKS = {*"p div section article main li ul ol dl dt dd tr table thead tbody pre blockquote figcaption br hr".split()}
SKIPPED = (
    "script, style, noscript, template, nav, header, footer, aside, svg, button, form, [hidden], [aria-hidden=true]"
)
HEADINGS = {f"h{level}": level for level in range(1, 7)}
SAMPLE_BYTES = 1 << 16
# Letters and signs of Western Europe: few words decide badly between neighbouring encodings.
WESTERN = {
    letter.encode("cp1252")
    for letter in "àâäåæçéèêëíìîïñóòôöøœúùûüáßÀÂÄÅÆÇÉÈÊËÍÎÏÑÓÔÖØŒÚÜÁ€£§°«»„“”‘’–—…·•¿¡\u00a0½²³×®©™"
}
ENCODINGS = "cp1252 cp1250 cp1251 koi8_r cp1253 cp1254 cp1255 cp1256 cp1257 gb18030 big5 cp932 euc_jp cp949".split()
CHARSET = re.compile(rb"(?i)(?:charset|encoding)\s*=\s*[\"']?\s*([a-z0-9_:.-]+)")
BAD = "\ufffd"
HYPHEN = re.compile(r"[\x02\u00ad\ufffe]\n?|(?<=[a-zà-ÿ])-\n(?=[a-zà-ÿ])")  # pdfium writes a broken word's as \x02
LEADERS = re.compile(r"(?: ?\.){4,}")  # of a table of contents
NUMBER = re.compile(r"\d+")
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
        return _pdf(content), ""
    if ending == ".docx":
        return list(html_blocks(_word(content))), ""
    if ending in (".html", ".htm", ".xhtml"):
        text, remark = decode(_as_declared(content))
        return list(html_blocks(text)), remark
    text, remark = decode(content)
    if ending in (".md", ".markdown"):
        from markdown_it import MarkdownIt

        return list(html_blocks(MarkdownIt("commonmark", {"html": True}).enable("table").render(_body(text)))), remark
    return [Block(0, " ".join(words.split())) for words in re.split(r"\n\s*\n", text) if words.strip()], remark


def _as_declared(content: bytes) -> bytes:
    """Return a page that is not UTF-8 in UTF-8, where it names its encoding and has no other."""
    declared = CHARSET.search(content[:2048])
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        try:
            return content.decode(declared[1].decode("ascii")).encode() if declared else content
        except (LookupError, ValueError):
            return content
    return content


def _body(text: str) -> str:
    """Return Markdown without the YAML block of metadata at its head."""
    match = re.match(r"---\n.*?\n(?:---|\.\.\.)\n", text, re.DOTALL)
    return text[match.end() :] if match else text


def decode(content: bytes) -> tuple[str, str]:
    """Decode a text, by what its bytes look like where they are not UTF-8, which the remark says.

    Raises:
        Unreadable: they are no text.
    """
    encoding, remark = encoding_of(content)
    text = content.decode(encoding, "replace")
    return _lines(text.replace(BAD, "") if encoding == "utf-8" else text), remark


def encoding_of(content: bytes) -> tuple[str, str]:
    """Return the encoding of a text by its beginning, and a remark where it is a guess.

    Raises:
        Unreadable: it is no text.
    """
    if marked := marked_encoding(content):
        return marked, ""
    if b"\0" in content[:SAMPLE_BYTES]:
        raise Unreadable("is binary, no text")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)
        return "utf-8", ""
    except UnicodeDecodeError:
        start = content[:SAMPLE_BYTES]
        text = start.decode("utf-8", "replace")
        if len(text.encode()) - len(text) > 4 * text.count(BAD):  # more good characters than bad ones
            return "utf-8", "bytes that are no UTF-8 are left out"
        if set(re.findall(rb"[\x80-\xff]", start)) <= WESTERN:
            return "cp1252", "read as cp1252, which was guessed"
        from charset_normalizer import from_bytes

        best = from_bytes(start, cp_isolation=[*ENCODINGS]).best()
        if best is None:
            raise Unreadable("is no text in a known encoding (save it as UTF-8)") from None
        return best.encoding, f"read as {best.encoding}, which was guessed"


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def html_blocks(text: str) -> Iterator[Block]:
    """Return the headings and paragraphs of a web page, without menus and scripts; cells of a table's row in one."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(text)
    if tree.body is None:
        return
    for node in tree.css(SKIPPED):
        if node.parent is not None and not (node.tag == "header" and node.css_first("h1")):
            node.decompose()
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
            held.append(child.text_content or "")
        elif tag in HEADINGS:
            yield from flush()
            if heading := " ".join(child.text(deep=True, separator=" ").split()):
                yield Block(HEADINGS[tag], heading)
        else:
            if tag in BREAKS:
                yield from flush()
            open_nodes.append((tag, child.iter(include_text=True)))
    yield from flush()


def _word(content: bytes) -> str:
    import mammoth

    try:
        return mammoth.convert_to_html(io.BytesIO(content)).value
    except (*BROKEN, ExpatError, LookupError, ValueError, TypeError, AttributeError, OSError) as error:
        raise Unreadable(f"is no Word file, or damaged ({type(error).__name__})") from error


def _pdf(content: bytes) -> list[Block]:
    import pypdfium2

    try:
        with pypdfium2.PdfDocument(content) as document:
            pages = [page.get_textpage().get_text_bounded() for page in document]
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        raise Unreadable("is locked by a password" if locked else f"is damaged, or no PDF ({error})") from error
    lines = [[line.strip() for line in _lines(page).split("\n") if line.strip()] for page in pages]
    edges = Counter(key for page in lines for key in {NUMBER.sub("0", line) for line in (page[:1] + page[-1:])})
    running = {key for key, count in edges.items() if count >= max(RUNNING, len(pages) / 2)}
    blocks = []
    for number, page in enumerate(lines, 1):
        inner = [
            line for n, line in enumerate(page) if n not in (0, len(page) - 1) or NUMBER.sub("0", line) not in running
        ]
        if text := " ".join(LEADERS.sub(" ", HYPHEN.sub("", "\n".join(inner))).split()):
            blocks.append(Block(0, text, number))
    return blocks
