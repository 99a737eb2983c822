//! Assembles the page.

use serde_json::Value;

const TEMPLATE: &str = include_str!("page.html");

/// Styles, in their order.
const STYLES: [&str; 2] = [include_str!("vendor/uPlot.min.css"), include_str!("page.css")];

/// Libraries, in the order of their dependence, then the scripts of the page.
const SCRIPTS: [&str; 18] = [
    include_str!("vendor/d3-dispatch.min.js"),
    include_str!("vendor/d3-selection.min.js"),
    include_str!("vendor/d3-color.min.js"),
    include_str!("vendor/d3-interpolate.min.js"),
    include_str!("vendor/d3-timer.min.js"),
    include_str!("vendor/d3-ease.min.js"),
    include_str!("vendor/d3-transition.min.js"),
    include_str!("vendor/d3-drag.min.js"),
    include_str!("vendor/d3-zoom.min.js"),
    include_str!("vendor/dagre.min.js"),
    include_str!("vendor/uPlot.iife.min.js"),
    include_str!("base.js"),
    include_str!("tree.js"),
    include_str!("graph.js"),
    include_str!("details.js"),
    include_str!("memory.js"),
    include_str!("tables.js"),
    include_str!("main.js"),
];

/// Licences of the libraries.
const LICENCES: [(&str, &str); 4] = [
    ("@dagrejs/dagre", include_str!("vendor/LICENSE.dagre")),
    ("d3", include_str!("vendor/LICENSE.d3")),
    ("d3-ease", include_str!("vendor/LICENSE.d3-ease")),
    ("uplot", include_str!("vendor/LICENSE.uPlot")),
];

/// The page with this title and data.
pub fn page(title: &str, data: &Value) -> String {
    let parts = [
        ("{{title}}", escaped(title)),
        ("{{styles}}", tags("style", &STYLES)),
        // Within a script element, only `<` can end it.
        ("{{data}}", data.to_string().replace('<', "\\u003c")),
        ("{{licences}}", LICENCES.map(|(name, text)| format!("{name}\n\n{text}")).join("\n")),
        ("{{scripts}}", tags("script", &SCRIPTS)),
    ];
    let mut page = String::new();
    let mut rest = TEMPLATE;
    for (mark, text) in parts {
        let (before, after) = rest.split_once(mark).expect("the template has every mark in order");
        page.push_str(before);
        page.push_str(&text);
        rest = after;
    }
    page + rest
}

fn tags(name: &str, texts: &[&str]) -> String {
    // The page has no map of a minified file.
    let lines = |text: &str| {
        let kept = text.lines().filter(|line| !line.starts_with("//# sourceMappingURL="));
        kept.collect::<Vec<_>>().join("\n")
    };
    texts.iter().map(|text| format!("<{name}>\n{}\n</{name}>\n", lines(text))).collect()
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_text_ends_an_element() {
        let page = page("a<b>&\"c", &json!({ "x": "</script><b>" }));
        assert!(page.contains("<title>a&lt;b&gt;&amp;&quot;c"));
        assert!(page.contains("\\u003c/script>\\u003cb>"));
        for (open, close) in [("<script", "</script>"), ("<style", "</style>")] {
            assert_eq!(page.matches(open).count(), page.matches(close).count());
        }
        for text in STYLES.iter().chain(&SCRIPTS) {
            assert!(!text.contains("</script") && !text.contains("</style"));
        }
    }

    #[test]
    fn the_page_names_no_network() {
        let page = page("f", &json!({}));
        for call in ["fetch(", "XMLHttpRequest", "import(", "@import", "url(http", "src=\"http"] {
            assert!(!page.contains(call), "{call}");
        }
    }
}
