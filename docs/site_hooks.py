"""Makes pages of what stands outside of `docs/`, for the site alone.

README, changes and the notebook stay where people look for them in a repository; the
site shows the same files. Files that a page links to (results, figures) are copied to
`repository/`, so that no link needs the address of a repository.
"""

import json
import pathlib
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = {
  "README.md": "index.md",
  "CHANGELOG.md": "changelog.md",
  "CONTRIBUTING.md": "contributing.md",
  "examples/README.md": "examples.md",
  "examples/tour.ipynb": "tour.md",
}
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
  """Adds the pages above, and every file of the repository that a page links to."""
  waiting = [path for path in PAGES if (ROOT / path).is_file()]
  waiting += [f"docs/{file.src_uri}" for file in files.documentation_pages()]
  seen = set(waiting)
  for path in waiting:  # grows
    text = _read(path)
    for target in _targets(path, text):
      if target not in seen and not target.startswith("docs/"):
        seen.add(target)
        if target.endswith(".md"):
          waiting.append(target)
        else:
          source = str(ROOT / target)
          uri = _site(target)
          files.append(File.generated(config, uri, abs_src_path=source))
    if not path.startswith("docs/"):
      files.append(File.generated(config, _site(path), content=_relink(path, text)))
  return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
  """Turns links out of `docs/` into links within the site."""
  if page.file.generated_by:
    return markdown
  return _relink(f"docs/{page.file.src_uri}", markdown)


def _site(path: str) -> str:
  """Where a file of the repository stands in the site."""
  if path.startswith("docs/"):
    return path.removeprefix("docs/")
  return PAGES.get(path, f"repository/{path}")


def _targets(path: str, text: str) -> list[str]:
  """The files of the repository that the text of `path` links to."""
  links = (match[1] for match in _LINK.finditer(text))
  there = (
    posixpath.normpath(posixpath.join(posixpath.dirname(path), a)) for a in links
  )
  return [target for target in there if (ROOT / target).is_file()]


def _relink(path: str, text: str) -> str:
  """`text` of the repository's `path`, with links as the site needs them."""
  here = posixpath.dirname(_site(path)) or "."

  def link(match: re.Match[str]) -> str:
    [*target] = _targets(path, match[0])
    if not target:
      return match[0]
    return f"]({posixpath.relpath(_site(target[0]), here)}{match[2] or ''})"

  return _LINK.sub(link, text)


def _read(path: str) -> str:
  text = (ROOT / path).read_text()
  return _show_notebook(json.loads(text)) if path.endswith(".ipynb") else text


def _show_notebook(notebook: dict) -> str:
  """A notebook as Markdown, with the outputs that it was saved with."""
  parts = []
  for cell in notebook["cells"]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
      parts.append(source)
      continue
    parts.append(f"```python\n{source}\n```")
    for output in cell["outputs"]:
      data = output.get("data", {})
      if "image/png" in data:
        image = "".join(data["image/png"]).replace("\n", "")
        parts.append(f'<img alt="figure" src="data:image/png;base64,{image}">')
      else:
        plain = "".join(output.get("text") or data.get("text/plain", ""))
        parts.append(f"```text\n{plain.rstrip()}\n```")
  return "\n\n".join(parts)
