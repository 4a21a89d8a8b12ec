"""What the rendered site adds to the Markdown of docs/, which GitHub shows as it is.

- The navigation: the lessons in their order, under the names that docs/README.md gives them.
- Quotations (see ../quote.py) get a title that links to the line in the source, output blocks (see
  ../output.py) the command that printed them.
- Links that leave docs/ lead to a page that shows the file, or the folder, in colours.
- Formulas become MathML, which browsers draw by themselves: no script, no fonts to fetch.
- Each SVG becomes two, for light and for dark, so that the switch at the top rules them too.
"""

import html
import pathlib
import posixpath
import re
import subprocess
import sys

import latex2mathml.converter
import pygments
import pygments.formatters
import pygments.lexers
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(HERE.parent))
import quote  # noqa: E402

SHOWN = {".c", ".cc", ".h", ".inc", ".cu", ".cuh", ".py", ".bzl", ".sh", ".md", ".json", ".svg"}
SHOWN_NAMES = {"BUILD", "WORKSPACE", ".bazelrc", "bazelw", "run", "LICENSE", "MODULE.bazel"}
LARGEST = 120_000  # bytes: test data and the tokenizer are no reading

FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()<?([^)\s>]+)>?(\s[^)]*)?\)")
QUOTED = re.compile(quote.QUOTE.pattern, quote.QUOTE.flags)
OUTPUT = re.compile(
    r"^<!-- output: ([^\n]+?)(?: #[\d-]+)? -->\n```text\n(.*?)^```\n<!-- end output -->$",
    re.MULTILINE | re.DOTALL,
)
INNER_QUOTE = "\ue000"  # a title has none of its own; on_page_content puts it back
INNER_QUOTE = "\ue000"  # a title has none of its own; on_page_content puts it back
DARK = re.compile(r"@media \(prefers-color-scheme: dark\)\s*\{((?:[^{}]*\{[^{}]*\})*[^{}]*)\}")


# --- The sources as pages.


def tracked():
    """The repository's files, as git knows them."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [pathlib.PurePosixPath(line) for line in listed.stdout.splitlines()]


def shown(path):
    known = path.suffix in SHOWN or path.name in SHOWN_NAMES
    return known and (ROOT / path).is_file() and (ROOT / path).stat().st_size <= LARGEST


def page_of(path):
    """The page that shows a file or folder of the repository."""
    if (ROOT / path).is_dir():
        return posixpath.join("source", str(path), "folder.md")
    return posixpath.join("source", f"{path}.md")


def source_html(path):
    text = (ROOT / path).read_text()
    lexer_names = {".cuh": "cuda", ".inc": "cpp", ".bzl": "python", ".bazel": "python", "": "python"}
    if path.name in ("LICENSE", ".bazelrc"):
        lexer = pygments.lexers.get_lexer_by_name("text")
    elif path.name in ("run", "bazelw"):
        lexer = pygments.lexers.get_lexer_by_name("bash")
    elif path.suffix in lexer_names:
        lexer = pygments.lexers.get_lexer_by_name(lexer_names[path.suffix])
    else:
        lexer = pygments.lexers.get_lexer_for_filename(path.name)
    formatter = pygments.formatters.HtmlFormatter(
        linenos="inline", wrapcode=True, lineanchors="L", anchorlinenos=True
    )
    code = pygments.highlight(text, lexer, formatter).replace('"#L-', '"#L').replace('"L-', '"L')
    return f'<div class="source">{code}</div>'


def folder_page(path, files):
    """A folder's files, and the folders in it."""
    depth = len(path.parts)
    names = sorted({"/".join(file.parts[depth : depth + 1]) for file in files})
    lines = []
    for name in names:
        target = page_of(path / name)
        relative = posixpath.relpath(target, posixpath.dirname(page_of(path)))
        lines.append(f"- [`{name}{'/' if (ROOT / path / name).is_dir() else ''}`]({relative})")
    return front_matter(path) + "\n".join(lines) + "\n"


def front_matter(path):
    """Out of the search, and with the way up."""
    crumbs, here = [], page_of(path)
    for parent in list(reversed(path.parents))[1:]:
        crumbs.append(f"[{parent.name}]({posixpath.relpath(page_of(parent), posixpath.dirname(here))})")
    trail = " / ".join(crumbs + [f"`{path.name}`"])
    return f"---\ntitle: {path}\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# {path.name}\n\n{trail}\n\n"


def on_files(files, config):
    paths = [path for path in tracked() if shown(path) and path.parts[0] != "docs"]
    folders = {}
    for path in paths:
        for parent in path.parents:
            if parent.parts:
                folders.setdefault(parent, []).append(path)

    def add(uri, content, inclusion=InclusionLevel.NOT_IN_NAV):
        files.append(File.generated(config, uri, content=content, inclusion=inclusion))

    for path in paths:
        if path.suffix == ".md":
            add(page_of(path), (ROOT / path).read_text())
        else:
            add(page_of(path), front_matter(path))
    for path, inside in folders.items():
        add(page_of(path), folder_page(path, inside))
    add("site/extra.css", (HERE / "extra.css").read_text())
    for picture in sorted(DOCS.glob("images/*.svg")):
        text = picture.read_text()
        uri = f"images/{picture.stem}"
        add(f"{uri}.light.svg", DARK.sub("", text))
        add(f"{uri}.dark.svg", DARK.sub(lambda match: match[1], text))
    return files


# --- The navigation.


def on_config(config):
    names = dict(
        (path, title)
        for title, path in re.findall(r"\[([^\]]+)\]\((\w+\.md)\)", (DOCS / "README.md").read_text())
    )

    def entry(page):
        return {names[page.name]: page.name} if page.name in names else page.name

    lessons = [entry(page) for page in sorted(DOCS.glob("[0-9][0-9]_*.md"))]
    others = [
        entry(page)
        for page in sorted(DOCS.glob("*.md"), key=lambda page: (page.stem != "one_token", page.stem))
        if page.name != "README.md" and not page.name[0].isdigit()
    ]
    config.nav = [{"The course": "README.md"}, {"Lessons": lessons}, {"Beside the lessons": others}]
    return config


# --- A page's Markdown.


def outside_fences(text, change):
    """Applies `change` to what lies between fenced blocks."""
    parts, end = [], 0
    for match in FENCE.finditer(text):
        parts += [change(text[end : match.start()]), match[0]]
        end = match.end()
    return "".join(parts) + change(text[end:])


def line_of(path, tag):
    lines = (ROOT / path).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 2) if f"tag::{tag}[]" in line)


def in_repository(uri, link):
    """Where in the repository a page's relative link leads."""
    if uri.startswith("source/"):
        base = posixpath.dirname(uri[len("source/") :])
    else:
        base = posixpath.join("docs", posixpath.dirname(uri))
    return posixpath.normpath(posixpath.join(base, link))


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    if uri.startswith("source/") and not uri.endswith(".md.md"):
        return markdown
    here = posixpath.dirname(uri)

    def rewritten(match):
        opening, link, title = match[1], match[2], match[3] or ""
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link) or not path:
            return match[0]
        target = in_repository(uri, path)
        if target.startswith("docs/"):
            target = target[len("docs/") :]
        elif target == "docs":
            target = "README.md"
        else:
            target = page_of(pathlib.PurePosixPath(target))
        link = posixpath.relpath(target, here or ".") + (f"#{anchor}" if anchor else "")
        return f"{opening}{link}{title})"

    def picture(match):
        text, path = match[1], match[2]
        return (
            '<div class="picture" markdown="1">\n'
            f"![{text}]({path}.light.svg#only-light)\n![{text}]({path}.dark.svg#only-dark)\n</div>"
        )

    def prose(text):
        text = LINK.sub(rewritten, text)
        text = re.sub(r"^!\[([^\]]*)\]\((images/\w+)\.svg\)$", picture, text, flags=re.MULTILINE)
        text = text.replace("<details>", '<details markdown="1">')
        # A line of a list item that begins with a year is no item of its own.
        return re.sub(r"^( +\d{3,})\. ", r"\1\\. ", text, flags=re.MULTILINE)

    if "```mermaid" in markdown:
        raise PluginError(f"{uri}: Mermaid would be fetched from the web; draw an SVG instead")

    def quoted(match):
        title = f"{match['path']}:{line_of(match['path'], match['tag'])}"
        opening = re.compile(r"^```(\w+)$", re.MULTILINE)  # two where there is a solution to fold
        return opening.sub(rf'``` {{.\1 title="{title}"}}', match["body"])

    def output(match):
        command = match[1].replace('"', INNER_QUOTE)
        return f'<div class="output" markdown="1">\n``` {{.text title="{command}"}}\n{match[2]}```\n</div>'

    markdown = QUOTED.sub(quoted, markdown)
    markdown = OUTPUT.sub(output, markdown)
    return outside_fences(markdown, prose)


# --- A page's HTML.


# What latex2mathml leaves rough, put right: names of several letters, primes, 10{,}320, and the thin
# spaces about cos and its kin.
LETTERS = re.compile(r'(?:<mi mathvariant="normal">[^<]</mi>){2,}')
POLISH = [
    (re.compile(r"<msup>(<mi>[^<]*</mi>)<mi>&#x02032;</mi></msup>"),
     r'<mrow>\1<mo lspace="0" rspace="0">&#x02032;</mo></mrow>'),
    (re.compile(r"<mn>(\d+)</mn><mrow><mo>&#x0002C;</mo></mrow><mn>(\d{3})</mn>"),
     r"<mn>\1,\2</mn>"),
    (re.compile(r"(?<=</mi>)(<mi>(?:cos|sin|exp|log|max)</mi>)"), r'<mspace width="0.17em" />\1'),
    (re.compile(r"(<mi>(?:cos|sin|exp|log|max)</mi>)(?=<mi>)"), r'\1<mspace width="0.17em" />'),
]


def polished(converted):
    name = lambda match: "<mi>" + re.sub(r"<[^>]*>", "", match[0]) + "</mi>"  # noqa: E731
    converted = LETTERS.sub(name, converted)
    for pattern, replacement in POLISH:
        converted = pattern.sub(replacement, converted)
    return converted


def mathml(match):
    display = match[1] == "div"
    latex = html.unescape(match[2])[2:-2].strip()
    converted = latex2mathml.converter.convert(latex, display="block" if display else "inline")
    return f'<{match[1]} class="arithmatex">{polished(converted)}</{match[1]}>'


def on_page_content(content, page, config, files):
    uri = page.file.src_uri
    here = posixpath.dirname(uri)
    path = ROOT / uri.removeprefix("source/").removesuffix(".md")
    if uri.startswith("source/") and path.is_file() and path.suffix != ".md":
        # Only here: Markdown would read the whole of it, at length and for nothing.
        return content + source_html(path)

    def source_link(match):
        path, line = match[1], match[2]
        target = posixpath.relpath(page_of(pathlib.PurePosixPath(path)), here or ".")
        target = re.sub(r"\.md$", ".html", target)
        return f'<span class="filename"><a href="{target}#L{line}">{path}</a>, line {line}</span>'

    content = content.replace(INNER_QUOTE, "&quot;")
    content = content.replace(INNER_QUOTE, "&quot;")
    content = re.sub(r'<(div|span) class="arithmatex">(.*?)</\1>', mathml, content, flags=re.DOTALL)
    return re.sub(r'<span class="filename">([\w./-]+):(\d+)</span>', source_link, content)
