"""Give a package the addresses of the GitHub repository whose workflow builds it; other builds know none."""

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
        if repository := os.environ.get("GITHUB_REPOSITORY"):
            home = f"{os.environ['GITHUB_SERVER_URL']}/{repository}"
            at = os.environ["GITHUB_REF_NAME"]
            text = re.sub(r"(!\[[^]]*\]\()(?![a-z]+:|#)", rf"\1{home}/raw/{at}/", text)
            text = re.sub(r"((?<!!)\[(?:[^][]|\[[^]]*\])*\]\()(?![a-z]+:|#)", rf"\1{home}/blob/{at}/", text)
            metadata["urls"] = {
                "Repository": home,
                "Documentation": f"{home}/tree/{at}/docs",
                "Changelog": f"{home}/blob/{at}/CHANGELOG.md",
                "Issues": f"{home}/issues",
                "Security": f"{home}/security/policy",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
