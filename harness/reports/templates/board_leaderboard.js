// Tab *Leaderboard*: every run with its interval and its cost, and which are not told apart from the best.
{
  tab("leaderboard", { en: "Leaderboard", ko: "순위표" }, (root) => {
    root.append(make("ol", {}, ...DATA.runs.slice(0, 100).map((run) => make("li", {}, run.short, " ", number(run.value)))));
  });
}
