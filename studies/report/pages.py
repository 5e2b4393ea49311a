"""Pages: Markdown from templates, and the same as one HTML page that needs no other file."""

import re
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markupsafe import Markup

from multitask.evaluation.text_tables import markdown_code, markdown_table, markdown_text
from studies.report.figures import Picture
from studies.report.sections import Section

INTERVAL = re.compile(r'(<td style="text-align:right">[^\[]*?) (\[[^<]*)</td>')
"""In a cell of numbers: the interval and what follows stand below the number."""
WIDTH = re.compile(r"max-width: ([\d.]+)in")
"""Of a picture."""
Pictures = Mapping[str, Picture]
"""Pictures by the paths under which a page's Markdown has them."""


@cache  # with it the compiled templates
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("studies", "report"),
        autoescape=lambda name: name == "page.html.jinja",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals |= {"text": markdown_text, "code": markdown_code, "anchor": anchor, "folded": folded}
    return made


def markdown_page(template: str, **values: Any) -> str:
    """A page in Markdown, with at most one empty line in a row."""
    return re.sub(r"\n{3,}", "\n\n", _templates().get_template(template).render(**values)).strip() + "\n"


def folded(note: str) -> str:
    """A note of which only the first sentence is seen at first."""
    first, _, rest = note.partition(". ")
    seen, hidden = markdown_text(first), markdown_text(rest)
    return f"<details><summary>{seen}.</summary>\n\n{hidden}\n\n</details>" if rest else markdown_text(note)


def section_pictures(section: Section, folder: str) -> Pictures:
    """A section's figures by their paths."""
    return {f"{folder}/{section.key}-{number}.svg": of for number, of in enumerate(section.pictures, start=1)}


def section_markdown(section: Section, folder: str) -> str:
    """A section's heading, text, figures with captions, and table."""
    parts = [f"## {section.title}", section.text]
    for path, picture in section_pictures(section, folder).items():
        parts += [f"![{markdown_text(picture.title)}]({path})", markdown_text(picture.caption)]
    if section.table is not None:
        parts.append(markdown_table(section.table.map(markdown_text), len(section.table.columns)))
    return "\n\n".join(filter(None, parts))


def anchor(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


class _Renderer(RendererHTML):
    """HTML whose pictures stand within the page, whose tables scroll, and whose headings have anchors."""

    def image(self, tokens: Any, place: int, options: Any, env: Any) -> str:
        # On a narrow screen a figure scrolls: smaller than three quarters of its size, its text could not be read.
        svg = str(env[tokens[place].attrs["src"]].svg)
        svg = WIDTH.sub(lambda size: f"min-width: {0.75 * float(size[1]):.1f}in; {size[0]}", svg, 1)
        return f'<figure tabindex="0">{svg}</figure>'

    def heading_open(self, tokens: Any, place: int, options: Any, env: Any) -> str:
        title = "".join(of.content for of in tokens[place + 1].children if of.type in ("text", "text_special"))
        return f'<{tokens[place].tag} id="{escape(anchor(title))}">'

    def table_open(self, tokens: Any, place: int, options: Any, env: Any) -> str:
        return '<div class="scroll" tabindex="0"><table>'

    def table_close(self, tokens: Any, place: int, options: Any, env: Any) -> str:
        return "</table></div>"


def html_page(markdown: str, pictures: Pictures) -> str:
    """A page's Markdown as HTML."""
    body = MarkdownIt("commonmark", renderer_cls=_Renderer).enable("table").render(markdown, dict(pictures))
    body = body.replace('<p><figure tabindex="0">', '<figure tabindex="0">').replace("</figure></p>", "</figure>")
    body = INTERVAL.sub(r"\1<small>\2</small></td>", body)
    title = markdown.partition("\n")[0].removeprefix("# ")
    return _templates().get_template("page.html.jinja").render(title=title, body=Markup(body))
