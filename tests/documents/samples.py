"""A small document of each format. The letters of the texts that are to be translated are all lower case."""

import io
import zipfile

from mt.documents.formats import translate_document
from mt.documents.protection import Translate
from mt.documents.tables import Fields
from mt.documents.texts import TextTranslator

PO = b"""# Comment about things.
msgid ""
msgstr ""
"Project-Id-Version: x\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#. For translators
#: src/a.c:10
msgid "open"
msgstr ""

#, c-format
msgctxt "menu"
msgid "%d file"
msgid_plural "%d files of {name}"
msgstr[0] ""
msgstr[1] ""

msgid "done"
msgstr "fertig"

#, fuzzy
#| msgid "old text"
msgid "new text"
msgstr "alter Text"

#| msgid "another old"
msgid ""
"two\\n"
"lines \\"quoted\\".\\n"
msgstr ""

#~ msgid "gone"
#~ msgstr "weg"
"""

SRT = b"""1
00:00:01,000 --> 00:00:02,500 X1:10 X2:20
they read <i>good books
every day</i> and drink tea.

2
00:00:03,000 --> 00:00:04,000
- where is it?
- i do not know.

3
00:00:05,000 --> 00:00:06,000
\xe2\x99\xaa

"""

VTT = b"""WEBVTT - A Title

STYLE
::cue { color: red }

NOTE a comment

intro
00:01.000 --> 00:02.500 align:start
<v Ann>good morning &amp; welcome.</v>

00:03.000 --> 00:04.000
it is <00:03.500>late.
"""

TMX = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header srclang="en" datatype="plaintext" segtype="sentence" adminlang="en" o-tmf="x" creationtool="y"
          creationtoolversion="1"/>
  <body>
    <tu tuid='1'>
      <note>A Note</note>
      <tuv xml:lang="en-US"><seg>i <bpt i="1">&lt;B></bpt>love<ept i="1">&lt;/B></ept> tea &amp; pie<ph/>.</seg></tuv>
      <tuv xml:lang="fr"><seg>J'AIME</seg></tuv>
    </tu>
    <tu><tuv xml:lang="en"><seg>cup</seg></tuv><tuv xml:lang="de"><seg>Tasse</seg></tuv></tu>
    <tu>
      <tuv xml:lang="en">
        <prop type="p">Q</prop>
        <seg>two
          lines</seg>
      </tuv>
    </tu>
    <tu><tuv xml:lang="fr"><seg>Seul</seg></tuv></tu>
  </body>
</tmx>
"""

XLIFF = b"""<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="A.txt" source-language="en-US" datatype="plaintext"><body>
    <trans-unit id="1">
      <source>click <g id="1">here</g> now<x id="2"/>!</source>
      <note>A Note</note>
    </trans-unit>
    <trans-unit id="2"><source>cup</source><target state="final">Tasse</target></trans-unit>
    <trans-unit id="3"><source>tea</source><target state='new'>tea</target></trans-unit>
    <trans-unit id="4"><source>cake</source><target/></trans-unit>
    <trans-unit id="5" translate="no"><source>KEEP</source></trans-unit>
    <trans-unit id="6"><source>one</source><alt-trans><source>x</source><target>Y</target></alt-trans></trans-unit>
  </body></file>
</xliff>
"""

XLIFF2 = b"""<xliff version="2.0" srcLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0">
  <file id="f"><unit id="u">
    <segment id="s1"><source>good <pc id="1">tea</pc>.</source></segment>
    <ignorable><source> </source></ignorable>
    <segment id="s2" state="final"><source>cup</source><target>Tasse</target></segment>
  </unit></file>
</xliff>
"""

HTML = b"""<!DOCTYPE html>
<html lang=en><head><meta charset="utf-8"><title>the tea page</title>
<meta name="description" content="all about tea"><style>P { color: red }</style></head>
<body CLASS='X'>
<!-- A Comment -->
<p>we like <b>green</b> tea &amp; cake,
   and <a href="HTTP://X/?A=1&amp;B">read</a>.<p>an open paragraph
<ul><li>one<li> two <code>X = Y</code> three </ul>
<pre>KEEP  This</pre><script>var A = "<p>Not This</p>";</script>
<img SRC=A.PNG alt="a cup"><span translate="no">Brand</span> is here
<p>caf&eacute;&nbsp;open</p><p>  </p>
</body></html>
"""

MD = b"""---
title: A Title
---

# good *tea*

> they read
> [good books](HTTP://X.Y "T") every day.

- first item
  goes on
1. second `CODE Here`

| cup | plate |
|-----|:-----:|
| one | two   |

```Python
KEEP = This
```

<div>Html Block</div>

see [REF] and <b>bold</b>  
hard break.

[REF]: http://x
"""

DOCX_PART = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>'
    '<w:p><w:pPr><w:jc w:val="center"/></w:pPr><w:r><w:t>they re</w:t></w:r><w:proofErr w:type="spellStart"/>'
    '<w:r w:rsidR="1"><w:t xml:space="preserve">ad </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>good</w:t></w:r>'
    "<w:r><w:tab/><w:t>books &amp; tea.</w:t></w:r></w:p>"
    "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>cell</w:t></w:r></w:p></w:tc></w:tr></w:tbl><w:p/>"
    "<w:p><w:r><w:t>12</w:t></w:r></w:p><w:sectPr/></w:body></w:document>"
)


def docx(part: str = DOCX_PART) -> bytes:
    types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/word/document.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
    )
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
        'Target="word/document.xml"/></Relationships>'
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", types)
        archive.writestr("_rels/.rels", relations)
        archive.writestr("word/document.xml", part)
        archive.writestr("word/media/A.png", b"\x89PNG\r\n")
    return file.getvalue()


JSONL = b'{"id": 1.50, "en": "good {name} tea.", "X": [1,  2]}\n{"en":"", "\\u00e9": null }\r\n{"en": "cup. plate."}'
TSV = b'A\tgood "tea\nB\t\nC\t cup\r\n'
CSV = b'id,en,note\n1,"good, tea",A\n2,"two\nlines ""q""","B"\r\n3,,C\n'
TEXT = b"  good tea. two cups!  \n\n\xe3\x80\x80\nlast"

SAMPLES = {
    "text": TEXT,
    "jsonl": JSONL,
    "tsv": TSV,
    "csv": CSV,
    "po": PO,
    "srt": SRT,
    "vtt": VTT,
    "tmx": TMX,
    "xliff": XLIFF,
    "html": HTML,
    "md": MD,
    "docx": docx(),
}


def translated(format: str, data: bytes, translate: Translate, source: str = "en", target: str = "de") -> bytes:
    """Returns a document as a translator makes it: fields are those of the samples."""
    texts = TextTranslator(source, target, translate)
    fields = Fields("1" if format == "tsv" else source, target)
    return b"".join(translate_document(format, io.BytesIO(data), f"a.{format}", texts, fields))


def same(sentences: list[str]) -> list[str]:
    return list(sentences)


def upper(sentences: list[str]) -> list[str]:
    return [sentence.upper() for sentence in sentences]
