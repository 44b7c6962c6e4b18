"""Text out of HTML, Word and PowerPoint markup, in reading order; tables become lines of ``a | b | c``."""

from __future__ import annotations

import posixpath
import re
import zipfile
from html.parser import HTMLParser
from xml.etree.ElementTree import Element

from envs.gaia.tools import ooxml

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_RELS = "{http://schemas.openxmlformats.org/package/2006/relationships}"

_SILENT = frozenset({"script", "style", "template", "noscript", "svg"})
_BLOCKS = frozenset(
    "address article aside blockquote body br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 "
    "head header hr html li main nav ol p pre section table tbody tfoot thead title tr ul".split()
)


def html_text(source: str) -> str:
    """The visible text of an HTML page, blocks on lines of their own."""
    parser = _Text()
    source = re.sub(r"<!\[[^>]*>?", "", source)  # a comment to browsers; the parser fails on odd ones
    # No character's number has more than eight digits; the parser fails on thousands of them.
    source = re.sub(r"&#0*([0-9]{1,8})[0-9]*", r"&#\1", source)
    parser.feed(source)
    parser.close()
    text = re.sub(r"[ \t\xa0]+", " ", "".join(parser.out))
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._silent = 0
        self._preformatted = 0
        self._cell = False
        """True where the row already has a cell."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent += 1
        elif tag == "tr":
            self.out.append("\n")
            self._cell = False
        elif tag in ("td", "th"):
            self.out.append(" | " if self._cell else "")
            self._cell = True
        elif tag == "li":
            self.out.append("\n- ")
        elif tag == "img":
            alt = dict(attrs).get("alt")
            self.out.append(f"[image: {alt}]" if alt else "")
        elif tag in _BLOCKS:
            self.out.append("\n")
        self._preformatted += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif tag in _BLOCKS and tag not in ("br", "tr", "li"):
            self.out.append("\n")
        self._preformatted = max(0, self._preformatted - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.out.append(data if self._preformatted else re.sub(r"\s+", " ", data))


def docx_text(archive: zipfile.ZipFile, path: str) -> str:
    """Headers, body and notes of a Word document."""
    names = archive.namelist()
    parts: list[str] = []
    for prefix, label in (("header", "header"), ("document", ""), ("footer", "footer"), ("footnotes", "footnotes")):
        found = ["word/document.xml"] if prefix == "document" else _numbered(names, rf"word/{prefix}\d*\.xml")
        for name in found:
            text = "\n".join(_word_blocks(ooxml.parse(archive, name, path))).strip()
            if text:
                parts.append(f"[{label}]\n{text}" if label else text)
    return "\n\n".join(parts)


def _word_blocks(element: Element) -> list[str]:
    """Paragraphs and table rows below ``element``, in order; nested containers are entered."""
    out: list[str] = []
    for child in element:
        if child.tag == f"{_W}p":
            out.append(_word_line(child))
        elif child.tag == f"{_W}tbl":
            for row in child.findall(f"{_W}tr"):
                cells = [" ".join(filter(None, _word_blocks(cell))) for cell in row.findall(f"{_W}tc")]
                out.append(" | ".join(cells))
        else:
            out += _word_blocks(child)
    return out


def _word_line(paragraph: Element) -> str:
    text = []
    for node in paragraph.iter():
        if node.tag == f"{_W}t":
            text.append(node.text or "")
        elif node.tag == f"{_W}tab":
            text.append("\t")
        elif node.tag in (f"{_W}br", f"{_W}cr"):
            text.append("\n")
    style = paragraph.find(f"{_W}pPr/{_W}pStyle")
    listed = paragraph.find(f"{_W}pPr/{_W}numPr") is not None
    if style is not None:
        listed |= style.get(f"{_W}val", "").startswith("List")
    return ("- " if listed else "") + "".join(text)


def pptx_text(archive: zipfile.ZipFile, path: str) -> str:
    """The slides of a presentation in order, with their notes."""
    order = ooxml.parse(archive, "ppt/presentation.xml", path)
    targets = _relations(archive, "ppt/presentation.xml", path)
    shown = (item.get(f"{_R}id", "") for item in order.iter(f"{_P}sldId"))
    slides = dict.fromkeys(targets[ref] for ref in shown if ref in targets)  # once each, however often it is named
    out = []
    for number, name in enumerate(slides, 1):
        out.append("\n".join([f"[slide {number}]", *_drawing_lines(ooxml.parse(archive, name, path))]))
        for target in dict.fromkeys(_relations(archive, name, path).values()):
            if "/notesSlides/" in target:
                notes = _drawing_lines(ooxml.parse(archive, target, path))
                out.append("\n".join([f"[notes of slide {number}]", *notes]))
    return "\n\n".join(out)


def _drawing_lines(element: Element) -> list[str]:
    out: list[str] = []
    for child in element:
        if child.tag == f"{_A}p":
            numbers = {
                t for field in child.iter(f"{_A}fld") if field.get("type") == "slidenum" for t in field.iter(f"{_A}t")
            }
            line = "".join(
                "\n" if node.tag == f"{_A}br" else node.text or ""
                for node in child.iter()
                if node.tag in (f"{_A}t", f"{_A}br") and node not in numbers
            )
            if line.strip():
                out.append(line)
        elif child.tag == f"{_A}tr":
            out.append(" | ".join(" ".join(_drawing_lines(cell)) for cell in child.findall(f"{_A}tc")))
        else:
            out += _drawing_lines(child)
    return out


def _relations(archive: zipfile.ZipFile, name: str, path: str) -> dict[str, str]:
    """Relation id -> member name, of one part."""
    folder, base = posixpath.split(name)
    rels = f"{folder}/_rels/{base}.rels"
    if rels not in archive.NameToInfo:
        return {}
    found = {}
    for item in ooxml.parse(archive, rels, path).iter(f"{_RELS}Relationship"):
        if item.get("TargetMode") != "External":
            target = item.get("Target", "")
            found[item.get("Id", "")] = posixpath.normpath(posixpath.join(folder, target)).lstrip("/")
    return found


def _numbered(names: list[str], pattern: str) -> list[str]:
    return sorted(name for name in names if re.fullmatch(pattern, name))
