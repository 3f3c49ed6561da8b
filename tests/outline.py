"""Pages of HTML as tests look at them."""

from __future__ import annotations

from html.parser import HTMLParser


class Outline(HTMLParser):
    """The elements of a page, which must be closed in their order, its texts, and what it would load or run.

    Scripts without an address are in ``scripts``, and ``attributes`` are of all elements in their order.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.loaded: list[str] = []
        self.scripts: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [] if tag in ("meta", "link", "input") else [tag]
        self.loaded += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "action")]
        self.loaded += (
            [tag] if tag in ("link", "iframe", "img") or (tag == "script" and "src" in dict(attrs)) else []
        )
        self.attributes.append({"tag": tag, **dict(attrs)})

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.texts).append(data)

    def with_attribute(self, name: str) -> list[dict[str, str | None]]:
        """Return the attributes of the elements that have one."""
        return [each for each in self.attributes if name in each]


__all__ = ["Outline"]
