"""Give a package the addresses of its repository, which REPOSITORY_URL names as for the documentation's site."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Addresses(MetadataHookInterface):
    """Sets `urls`, and `readme` with absolute links: an index shows the README without the files that it links to."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["urls"] = {}
        if home := os.environ.get("REPOSITORY_URL"):
            tag = f"v{metadata['version']}"
            text = re.sub(r"(!\[[^]]*\]\()(?![a-z]+:|#)", rf"\1{home}/raw/{tag}/", text)
            text = re.sub(r"((?<!!)\[(?:[^][]|\[[^]]*\])*\]\()(?![a-z]+:|#)", rf"\1{home}/blob/{tag}/", text)
            metadata["urls"] = {
                "Repository": home,
                "Documentation": f"{home}/tree/{tag}/docs",
                "Changelog": f"{home}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{home}/issues",
                "Security": f"{home}/security/policy",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
