// Tab *Report*: the report of a comparison, in sentences and tables.
if (DATA.sections.length) {
  tab("report", { en: "Report", ko: "보고서" }, (root) => {
    const sections = reportSections(DATA.sections);
    root.append(contents(sections, DATA.sections.map((one) => one.title)), ...sections);
  });
}
