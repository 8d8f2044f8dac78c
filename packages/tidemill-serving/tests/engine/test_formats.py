"""SavedModels in other forms: with other tags, and as text."""

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from tidemill_serving.engine import Formats, open_engine
from tidemill_serving.engine.wheel import open_wheel
from tidemill_serving.errors import StartFailed
from tidemill_serving.models import find_versions


def saved_with_tags(models: Path, directory: Path, *tags: str, as_text: bool = False) -> Path:
    """Write a copy of a model whose only graph has these tags; the other files are links."""
    original = models / "half_plus/123"
    saved = open_wheel().saved_model.SavedModel.FromString((original / "saved_model.pb").read_bytes())
    del saved.meta_graphs[0].meta_info_def.tags[:]
    saved.meta_graphs[0].meta_info_def.tags.extend(tags)
    directory.mkdir(parents=True)
    (directory / "variables").symlink_to(original / "variables")
    if as_text:
        (directory / "saved_model.pbtxt").write_text(text_format.MessageToString(saved))
    else:
        (directory / "saved_model.pb").write_bytes(saved.SerializeToString())
    return directory


@pytest.mark.parametrize(("tags", "as_text"), [(("serve", "tpu"), False), (("serve",), True), (("train",), True)])
def test_a_graph_is_loaded_by_its_tags_from_either_form(
    models: Path, tmp_path: Path, tags: tuple[str, ...], as_text: bool
) -> None:
    path = saved_with_tags(models, tmp_path / "half/1", *tags, as_text=as_text)
    assert [version.path for version in find_versions(tmp_path)] == [path]
    engine = open_engine("c_api", formats=Formats(tags=tags[::-1]))
    model = engine.load(path)
    (answer,) = model.run(model.signatures["serving_default"], [np.array([2.0], np.float32)], pooled=False)
    assert answer.tolist() == [3.0]
    model.close()
    with pytest.raises(StartFailed, match=r"no graph tagged \['other'\], only .*--saved-model-tags"):
        open_engine("c_api", formats=Formats(tags=("other",))).load(path)
