"""Pages taken apart: their elements, attributes and scripts."""

import json
from html.parser import HTMLParser

HOSTILE = (
    "</script><script>document.title='x'</script><img src=x onerror=alert(1)>\u2028| **달** `c` {{data}} {{policy}} \"'"
)


class Parts(HTMLParser):
    """The elements of a page, their attributes, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.attributes = [], {}, []
        self._kind = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "script":
            self._kind = dict(attrs).get("type", "code")
            self.scripts[self._kind] = ""

    def handle_data(self, data):
        if self._kind:
            self.scripts[self._kind] += data

    def handle_endtag(self, tag):
        self._kind = None


def data_of(page):
    return json.loads(Parts(page).scripts["application/json"])


def inert(page):
    """Whether no text of a page became an element, an attribute or code."""
    parts = Parts(page)
    code = parts.tags.count("script") == 2 and "<" not in parts.scripts["application/json"]
    return code and "img" not in parts.tags and not [name for name in parts.attributes if name.startswith("on")]
