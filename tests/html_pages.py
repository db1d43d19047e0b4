"""What tests of pages share: a parser that checks how elements are nested."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "input", "br", "hr"}


class Parsed(HTMLParser):
    """Collect elements, and check that they are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def of_class(self, *names: str) -> list[tuple[str, dict[str, str | None]]]:
        """Return the elements that have all of these classes."""
        elements = []
        for tag, attributes in self.elements:
            classes = (attributes.get("class") or "").split()
            if set(names) <= set(classes):
                elements.append((tag, attributes))
        return elements

    def values(self, name: str) -> list[str]:
        """Return the values of an attribute, in the order of the elements that have it."""
        values = [attributes.get(name) for _, attributes in self.elements]
        return [value for value in values if value is not None]
