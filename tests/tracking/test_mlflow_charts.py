"""The charts of a sweep's view: how MLflow reads them is tested in a browser."""

from harness.tracking.mlflow_tracker import SCATTERED, charts


def test_all_params_are_in_one_chart_and_the_first_ones_have_their_own():
    params = [f"p{n}" for n in range(SCATTERED + 2)]
    found = charts("modified_map_at_3", params)
    parallel, *scattered = found["compareRunCharts"]
    assert (parallel["type"], parallel["selectedParams"]) == ("PARALLEL", params)
    assert parallel["selectedMetrics"] == ["modified_map_at_3"]
    assert [one["xaxis"]["key"] for one in scattered] == params[:SCATTERED]
    assert {one["yaxis"]["key"] for one in scattered} == {"modified_map_at_3"}
    [section] = found["compareRunSections"]
    assert {one["metricSectionId"] for one in found["compareRunCharts"]} == {section["uuid"]}
    assert len({one["uuid"] for one in found["compareRunCharts"]}) == SCATTERED + 1
