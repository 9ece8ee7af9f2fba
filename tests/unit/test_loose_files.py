"""Plain files as documents: text, Markdown, HTML, Word, PDF and tables, cut into passages, with named holes."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.stage_helpers import spec_of

from zerodr.artifacts.stage import run_spec
from zerodr.collections.access import read_corpus
from zerodr.collections.cutting import Block, cut, size_of
from zerodr.collections.readers.base import Document
from zerodr.collections.texts import decode
from zerodr.collections.user_folders import normalize_corpus, open_folder
from zerodr.config.load import load_bench
from zerodr.config.loose_files import Columns, Cut, loose_files
from zerodr.config.user_folders import estimated_documents, find_files, not_read
from zerodr.errors import CollectionError, ConfigError
from zerodr.operations.folders import examine, notices
from zerodr.plan.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
PAGE = """<html><head><title>x</title></head><body><nav>menu</nav><h1>Sepsis <b>care</b></h1><p>Give
<i>fluids</i>.</p><script>no()</script><table><tr><td>drug</td><td>dose</td></tr></table></body></html>"""
MARKDOWN = "---\ntags: x\n---\n# Sepsis care\n\nGive *fluids* and [antibiotics](http://a.b).\n\n- soon\n- often\n"


def word(text: str, style: str = "heading 1") -> bytes:
    """A Word file: heading, paragraph."""
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    head = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Sepsis care</w:t></w:r></w:p>'
    body = f"<w:document {space}><w:body>{head}<w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>"
    styles = f'<w:styles {space}><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="{style}"/></w:style>'
    kinds = "http://schemas.openxmlformats.org/package/2006"
    links = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{kinds}/content-types">'
        '<Default Extension="xml" ContentType="a/b"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{kinds}/relationships">'
        f'<Relationship Id="r1" Type="{links}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{kinds}/relationships"><Relationship Id="r2"'
        f' Type="{links}/styles" Target="styles.xml"/></Relationships>',
        "word/document.xml": body,
        "word/styles.xml": styles + "</w:styles>",
    }
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return target.getvalue()


def pdf(pages: list[str], trailer: str = "") -> bytes:
    """A PDF file with a line of text on each page."""
    numbers = [3 + 2 * n for n in range(len(pages))]
    objects = {
        1: "<</Type/Catalog/Pages 2 0 R>>",
        2: f"<</Type/Pages/Kids[{' '.join(f'{n} 0 R' for n in numbers)}]/Count {len(pages)}>>",
    }
    font = "/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    for number, text in zip(numbers, pages, strict=True):
        lines = " ".join(f"({line}) Tj 0 -20 Td" for line in text.split("\n"))
        content = f"BT /F 12 Tf 50 700 Td {lines} ET"
        objects[number] = f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {number + 1} 0 R{font}>>"
        objects[number + 1] = f"<</Length {len(content)}>>stream\n{content}\nendstream"
    body, offsets = "%PDF-1.4\n", []
    for number in sorted(objects):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{objects[number]}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    start = len(body)
    size = len(objects) + 1
    body += f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer<</Size {size}/Root 1 0 R{trailer}>>\n"
    return f"{body}startxref\n{start}\n%%EOF\n".encode()


LOCKED = "/ID[<00><00>]/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<" + "00" * 32 + ">/U<" + "11" * 32 + ">>>"


def read(folder: Path, **settings: object) -> tuple[list[Document], list[str]]:
    reader = open_folder(str(folder), find_files(folder)["corpus"], **settings)  # type: ignore[arg-type]
    return list(reader.documents()), reader.remarks


@pytest.mark.parametrize(
    ("name", "content", "title", "text"),
    [
        ("a.txt", b"Give fluids.\n\nSoon.", "a", "Give fluids.\nSoon."),
        ("a.md", MARKDOWN.encode(), "Sepsis care", "Give fluids and antibiotics.\nsoon\noften"),
        ("a.HTML", PAGE.encode(), "Sepsis care", "Give fluids.\ndrug | dose"),
        ("a.html", b"<div>" * 5000 + b"Give fluids." + b"</div>" * 5000, "a", "Give fluids."),
        ("a.docx", word("Give fluids."), "Sepsis care", "Give fluids."),
        ("a.docx", word("Give fluids.", "Title"), "Sepsis care", "Give fluids."),
        ("a.txt", "Größe und Maß".encode("cp1252"), "a", "Größe und Maß"),
        ("a.txt", "Größe".encode("utf-16"), "a", "Größe"),
        ("a.txt", "Это русский текст, написанный давно.".encode("cp1251"), "a", "Это русский текст, написанный давно."),
    ],
)
def test_a_text_in_each_form(tmp_path, name, content, title, text):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / name).write_bytes(content)
    documents, _ = read(tmp_path)
    assert [row[:3] for row in documents] == [(f"sub/{name}#1", title, text)]


def test_passages_of_a_pdf_know_their_page_and_running_lines_are_no_text(tmp_path):
    words = "One two three four five six seven eight nine ten."
    (tmp_path / "a.pdf").write_bytes(pdf([f"My journal\nPage {n}: {words}\nfoot | {n}" for n in range(1, 5)]))
    documents, remarks = read(tmp_path, cut=Cut(words=20, overlap=0))
    assert [row.id for row in documents] == [f"a.pdf#page={n}" for n in range(1, 5)] and not remarks
    assert documents[1][1:3] == ("a", f"Page 2: {words}")


def test_lines_at_the_edge_of_a_page_that_differ_in_more_than_its_number_are_text(tmp_path):
    (tmp_path / "a.pdf").write_bytes(pdf([f"Invoice {1000 + n}\nFive pumps.\nTotal: {9 * n}.50" for n in range(1, 5)]))
    documents, _ = read(tmp_path)
    assert all(
        f"Invoice {1000 + n}" in row.text and f"Total: {9 * n}.50" in row.text for n, row in enumerate(documents, 1)
    )


@pytest.mark.parametrize(
    ("name", "content", "title", "text"),
    [
        (
            "a.md",
            "The <form> is.\n\nA List<String>.\n\n<nav> too.",
            "a",
            "The <form> is.\nA List<String>.\n<nav> too.",
        ),
        ("a.md", "<p align=center>Hi <b>all</b></p>\n\n<script>\nx\n</script>\n\nEnd.", "a", "Hi all\nEnd."),
        ("a.md", "---\ntitle: Pumps\n---\nValves.", "Pumps", "Valves."),
        ("a.md", "---\ntitle: Pumps\n---\n# Own\nValves.", "Own", "Valves."),
        ("a.md", "---\nA rule above.\n\n---\nValves.", "a", "A rule above.\nValves."),
        ("a.html", "<form><h1>Pumps</h1><p>Valves.</p><select><option>x</select></form>", "Pumps", "Valves."),
        ("a.html", "<title> Pumps </title><p>Valves.</p>", "Pumps", "Valves."),
        ("a.html", "<title>Shop</title><h1>Pumps</h1><p>Valves.</p>", "Pumps", "Valves."),
        ("a.html", "<p>Valves.</p><form>Search <input><button>go</button></form>", "a", "Valves."),
        (
            "a.html",
            "<header><h2>X</h2></header><main><header><h2>Pumps</h2></header>Oil.</main>",
            "Pumps",
            "Oil.",
        ),
        ("a.html", "<details><summary>Pumps</summary>Valves.</details>", "a", "Pumps\nValves."),
    ],
)
def test_nothing_swallows_the_text_that_follows(tmp_path, name, content, title, text):
    (tmp_path / name).write_text(content)
    (document,), _ = read(tmp_path)
    assert document[1:3] == (title, text)


def test_an_encoding_is_known_from_the_whole_file(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"plain\n\n" * 10_000 + "Größe und Maß\n\n".encode() * 9 + b"\xff")
    (tmp_path / "b.csv").write_bytes(b"id,text\n" + b"1,plain\n" * 10_000 + "2,Größe".encode("cp1252"))
    documents, remarks = read(tmp_path)
    texts = " ".join(row.text for row in documents)
    assert "Größe und Maß" in texts and "Ã" not in texts and documents[-1].text == "Größe"
    assert "a.txt: bytes that are no UTF-8 are left out" in remarks


def test_rows_without_a_text_are_left_out_or_told(tmp_path):
    rows = [{"id": "1", "text": "Pumps"}, {"id": "2", "body": "?"}, {"id": "3", "title": "Valves"}, {"id": "4"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    documents, remarks = read(tmp_path)
    assert [row.id for row in documents] == ["1", "3"]
    assert {"2 rows without a text left out", "1 row with a title and no text"} <= {*remarks}


def test_nan_is_no_text_and_a_second_column_of_a_name_hides_none(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"title": NaN, "text": "Pumps"}\n{"title": "Valves", "text": NaN}\n')
    (tmp_path / "b.csv").write_text("text,id,text\nPumps,1,Valves\n")
    documents, remarks = read(tmp_path)
    assert [row[1:3] for row in documents] == [("", "Pumps"), ("Valves", ""), ("", "Pumps")]
    assert "not read: text (column 3)" in remarks[1]


def test_a_link_to_a_folder_is_named(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.txt").write_text("Pumps.")
    (tmp_path / "more").mkdir()
    (tmp_path / "docs/linked").symlink_to(tmp_path / "more")
    assert [path.name for path in loose_files(tmp_path / "docs")[1]] == ["linked"]


def test_what_can_not_be_read_is_a_named_hole(tmp_path):
    contents = {
        "locked.pdf": pdf(["secret"], LOCKED),
        "broken.pdf": b"%PDF-1.4 nothing",
        "scan.pdf": pdf([""]),
        "binary.txt": b"\x7fELF\0\0\1",
        "broken.docx": b"PK no",
        "empty.md": b"",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CollectionError, match="holds no text .*binary.txt: is binary"):
        read(tmp_path)
    (tmp_path / "good.txt").write_text("Text.")
    (tmp_path / "x.png").write_bytes(b"p")
    documents, remarks = read(tmp_path)
    assert [row.id for row in documents] == ["good.txt#1"]
    told = "\n".join(remarks)
    assert "locked.pdf: is locked by a password" in told and "broken.docx: is no Word file" in told
    assert "broken.pdf: is damaged" in told and "scan.pdf" in told and "empty.md: holds no text" in told
    assert not_read(tmp_path) == "not read: x.png"


def test_equal_passages_are_read_once(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.md").write_text("# Same\n\nText.\n")
    documents, remarks = read(tmp_path)
    assert len(documents) == 1 and remarks == ["1 passage with the text of another left out"]


FAQ = "question;answer;source\nWhat is it?;A long answer; x\nWhy?;Because of that;y\n".replace("; x", ";x")
FAQ_ROWS = [("faq.csv#1", "What is it?", "A long answer"), ("faq.csv#2", "Why?", "Because of that")]


def test_columns_of_a_table_are_guessed_told_and_chosen(tmp_path):
    (tmp_path / "faq.csv").write_text(FAQ)
    documents, remarks = read(tmp_path)
    assert [row[:3] for row in documents] == FAQ_ROWS
    assert remarks[0].startswith("faq.csv: text is column 'answer', title 'question', id 'row of the table'; not read")
    documents, _ = read(tmp_path, columns=Columns(text="answer", title="question", id="source"))
    assert documents[0][:3] == ("x", "What is it?", "A long answer")
    (tmp_path / "faq.csv").write_text(FAQ.replace("question", "Subject"))
    assert read(tmp_path)[0][0][:3] == ("faq.csv#1", "What is it?", "A long answer")
    with pytest.raises(CollectionError, match=r"has no column 'answr' \(--text\): did you mean answer"):
        read(tmp_path, columns=Columns(text="answr"))
    (tmp_path / "faq.csv").write_text(FAQ + "only one cell\n")
    with pytest.raises(CollectionError, match="faq.csv:4: expected 3 cells, found 1"):
        read(tmp_path)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_a_table_in_another_encoding(tmp_path, encoding):
    (tmp_path / "t.csv").write_bytes("id,text\n1,größer als Äpfel\n".encode(encoding))
    assert read(tmp_path)[0][0][:3] == ("1", "", "größer als Äpfel")


def test_a_file_is_a_collection_named_like_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("My FAQ.csv").write_text(FAQ)
    bench = examine(load_bench(ROOT, {"byo": "My FAQ.csv", "byo_columns": {"text": "answer", "title": "question"}}))
    assert bench.collections["my-faq"].planned_documents == 3
    assert any("title 'question'" in line for line in notices(bench))
    plan = Plan(bench)
    params = json.loads(plan.settings("normalize_corpus")(SimpleNamespace(collection="my-faq")))["settings"]
    assert params["columns"] == {"text": "answer", "title": "question"} and len(params["content"]) == 1
    with pytest.raises(ConfigError, match="does not exist"):
        load_bench(ROOT, {"byo": "absent.csv"})


def test_the_stage_reads_what_the_plan_saw(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/a.md").write_text(MARKDOWN)
    params = {"name": "notes", "archive": "notes", "content": ["x"], "cut": {"words": 30, "overlap": 5}}
    output = "results/collections/notes/manifest.json"
    files = {"files": ["notes/a.md"]}
    run_spec(
        spec_of(rule="normalize_corpus", params=params, inputs=files, outputs={"section": output}), normalize_corpus
    )
    rows = [row for batch in read_corpus(Path(output).parent) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == ["a.md#1"]


def test_tables_about_queries_are_no_documents(tmp_path):
    (tmp_path / "docs.tsv").write_text("id\ttext\n1\twords\n")
    (tmp_path / "topics.tsv").write_text("id\ttext\n1\tquery\n")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "x"}\n')
    assert [row.id for row in read(tmp_path)[0]] == ["1"]
    assert not_read(tmp_path) == "not read: topics.tsv" and set(find_files(tmp_path)) == {"corpus", "queries"}
    assert estimated_documents(tmp_path) == 2


@pytest.mark.parametrize("name", ["judgements/dev.tsv", "Qrels/test.csv", "Judgments/2024/a.jsonl"])
def test_tables_in_a_folder_of_judgements_are_no_documents(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    (tmp_path / "a.md").write_text("# Sepsis\n\nGive fluids.\n")
    assert [row.id for row in read(tmp_path)[0]] == ["a.md#1"]
    assert Path(name).name in not_read(tmp_path)


JUDGED = [
    ("dev.tsv", "query-id\tcorpus-id\tscore\nq 1\td1\t1\nq 2\td2\t0\n"),
    ("test.csv", "qid,docid,rel\n1,17,2\n2,18,1\n"),
    ("part/dev.tsv", "1\t0\t7067032\t1\n2\t0\t7067033\t1\n"),
    ("dev.tsv.gz", "q1\td1\t1\nq2\td2\t1\n"),
    ("dev.jsonl", '{"query-id": "q1", "corpus-id": "d1", "score": 1}\n'),
    ("qidpid.tsv", "qid\tpid\n3\t9\n"),
    ("covid.tsv", "1 4.5 005b2j4b 2\n1 4 00fmeepz 1\n"),
    ("bm25.tsv", "q1 Q0 d1 1 9.5 bm25\nq1 Q0 d2 2 9.25 bm25\n"),
    ("noten.tsv", "Frage\tDokument\tNote\nf1\td1\t1\nf2\td3\t0\n"),
    ("dev.txt", "1 0 7067032 1\n2 0 7067033 1\n"),
    ("bm25.txt", "q1 Q0 d1 1 9.5 bm25\nq1 Q0 d2 2 9.25 bm25\n"),
    ("gold.txt", "query-id\tcorpus-id\tscore\nq1\td1\t1\n"),
    ("wide.txt", "1 0 7067032 1\n2 0 7067033 1\n".encode("utf-16")),
    ("parts.txt", "q1 0 d1 1.0\nq2 0 d2 0.5\n"),
    ("scores.txt", "q1\td1\t12.5\nq1\td2\t11.5\n"),
    ("commas.txt", "query-id,corpus-id,score\nq1,d1,1\nq2,d2,0\n"),
    ("entities.tsv", "INEX_LD-1\tQ0\t<dbpedia:Foo>\t1\nINEX_LD-2\tQ0\t<dbpedia:Bar>\t0\n"),
    ("found.jsonl", '{"query_id": "q1", "doc_id": "d1", "rank": 1, "tag": "bm25"}\n'),
]
DOCUMENTS = [
    ("a.tsv", "id\ttext\n1\tfluids\n"),
    ("b.tsv", "1\tSepsis\tGive fluids early.\n2\tShock\tGive 2\n"),
    ("c.tsv", "1\tfluids\n2\tantibiotics\n"),
    ("d.csv", "query,document,label\nwas hilft?,Gib früh viel Flüssigkeit.,1\n"),
    ("e.csv", "query,document,label\n败血症,尽早补液。,1\n"),
    ("f.csv", "query_id,doc_id,passage,score\n1,d1,Give fluids early.,0.5\n"),
    ("g.csv", "id,topic,answer,score\n1,sepsis,Give fluids early.,5\n"),
    ("h.csv", "doc_id,title,score\n1,Sepsis,5\n"),
    ("i.jsonl", '{"id": "1", "question": "what helps?", "answer": "fluids", "score": 2}\n'),
    ("j.txt", "Give fluids early.\n"),
    ("k.txt", "1 0 is a number\n"),
    ("l.tsv", "d1\tsepsis-care\tfluids\t7\n"),
    ("m.csv", "sku,name,stock\nA1,Pump,12\nB2,Valve,70\n"),
    ("n.tsv", "A00\tCholera\t1\nA01\tTyphoid\t1\n"),
    ("o.tsv", "run\tVERB\t12\ndog\tNOUN\t7\n"),
    ("p.tsv", "A101\t2\tKitchen\t35\nA102\t2\tBath\t8\n"),
    ("q.tsv", "1\t3\tPump\t12\t9.5\tACME\n2\t3\tValve\t13\t4.5\tACME\n"),
    ("r.csv", "id,topic,label\n1,breakfast,porridge\n2,lunch,soup\n"),
    ("s.csv", "question_id,doc_id,text\n1,d1,fluids\n2,d2,rest\n"),
    ("t.csv", "question_id,doc_id,answer\n1,d1,fluids\n2,d2,rest\n"),
    ("u.jsonl", '{"id": 1, "topic": "pumps", "rating": 4, "label": 3}\n'),
    ("v.txt", "Arsenal 0 Chelsea 2\nLeeds 0 Derby 1\n"),
    ("w.txt", "dog\tHund\t1\ncat\tKatze\t1\n"),
    ("x.txt", "狗\tgou\t3\n猫\tmao\t1\n"),
]


@pytest.mark.parametrize(("name", "text"), JUDGED)
def test_judgements_and_rankings_among_documents_are_none_and_are_named(tmp_path, name, text):
    (tmp_path / "part").mkdir()
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(CollectionError, match="holds no text"):
        read(tmp_path)
    (tmp_path / "a.md").write_text("# Sepsis\n\nGive fluids.\n")
    rows, remarks = read(tmp_path)
    assert [row.id for row in rows] == ["a.md#1"]
    assert any(f"not read: {name}: holds judgements or a ranking" in remark for remark in remarks)


@pytest.mark.parametrize(("name", "text"), DOCUMENTS)
def test_tables_and_texts_of_documents_stay_documents(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read(tmp_path)[0] and not any("judgements" in remark for remark in read(tmp_path)[1])


def test_a_long_text_is_cut_at_headings_and_sentences():
    sentence = "Nine words are in this sentence about the cuts."
    blocks = [Block(1, "Guide"), Block(0, " ".join([sentence] * 10)), Block(2, "Part"), Block(0, sentence)]
    passages = list(cut(blocks, "x", Cut(words=40, overlap=10)))
    assert [passage.fragment for passage in passages] == ["1", "2", "3", "4"]
    assert [passage.title for passage in passages] == ["Guide"] * 3 + ["Guide > Part"]
    assert all(size_of(passage.text) <= 40 for passage in passages)
    assert [passage.text.count(sentence) for passage in passages] == [4, 4, 4, 1]  # one of each is the overlap


def test_short_sections_are_joined_and_a_long_sentence_is_cut():
    blocks = [Block(1, "A"), Block(0, "one"), Block(2, "B"), Block(0, "two"), Block(2, "C"), Block(0, "word " * 60)]
    passages = list(cut(blocks, "x", Cut(words=40)))
    assert passages[0] == ("1", "A", "one\nB\ntwo") and passages[1].text.startswith("C\nword word")


@pytest.mark.parametrize(
    "text",
    [
        "so it goes on " * 800,
        "\n".join(["- a point of a list of points"] * 200),
        "\n".join(["x = f(x)  # code"] * 300),
        "検索、" * 3000,
        "ค้นหาเอกสาร" * 900,
        "k3J9x" * 5000,
    ],
    ids=["transcript", "list", "code", "japanese", "thai", "no-text"],
)
def test_what_ends_with_no_sentence_is_cut_too_and_nothing_is_lost(text):
    passages = list(cut([Block(0, text)], "x", Cut()))
    assert len(passages) > 5 and max(size_of(passage.text) for passage in passages) <= 150 * 1.02
    letters = "".join(passage.text for passage in passages)
    assert len("".join(letters.split())) >= len("".join(text.split()))


def test_text_without_a_known_encoding_is_told():
    assert decode(b"plain")[0] == "plain" and decode(b"\xff\xfea\0")[0] == "a"
