//! What templates give, and what they refuse.

use super::*;

const EVENT: &str = r#"{"eventType":"ticket.created","subject":null,"data":{"env":"prod","n":7,"who":["u1","u2"],
    "html":"<b>&'\"</b>","bomb":"{{ 7*7 }}{% for x in y %}","ctl":"a\u0007b\r\nc\u001b[31m","deep":{"er":"x"}}}"#;

fn text(source: &str) -> String {
    Template::parse(source).unwrap().text(&Fields::of(EVENT)).unwrap()
}

#[test]
fn fields_are_filled_in_and_missing_ones_are_empty() {
    for (source, expected) in [
        ("plain, with * and { and }", "plain, with * and { and }"),
        ("{{ eventType }} in {{ data.env }}", "ticket.created in prod"),
        ("{{ data.nothing.at.all }}|{{ subject }}|{{ unknown }}", "||"),
        ("{{ data.nothing|default('none') }}", "none"),
        ("{{ data.who|join(', ') }}", "u1, u2"),
        ("{% for u in data.who %}<{{ u }}>{% endfor %}", "<u1><u2>"),
        ("{% if data.n > 5 %}many{% else %}few{% endif %}", "many"),
        ("{{ data.env|upper }}{{ data.env|truncate(2) }}", "PRODpr…"),
        ("{# nothing #}x", "x"),
    ] {
        assert_eq!(text(source), expected, "{source}");
    }
}

#[test]
fn data_is_never_read_as_a_template() {
    assert_eq!(text("{{ data.bomb }}"), "{{ 7*7 }}{% for x in y %}");
}

#[test]
fn output_is_escaped_for_its_channel() {
    let template = Template::parse("<p>{{ data.html }}</p>").unwrap();
    let fields = Fields::of(EVENT);
    assert_eq!(template.text(&fields).unwrap(), "<p><b>&'\"</b></p>");
    assert_eq!(template.html(&fields).unwrap(), "<p>&lt;b&gt;&amp;&#x27;&quot;&lt;&#x2f;b&gt;</p>");
    assert!(
        Template::parse_stored("{{ data.html|safe }}").unwrap().html(&fields).is_err(),
        "nothing turns escaping off"
    );
    assert_eq!(text("{{ data.ctl }}"), "ab\nc[31m");
    assert_eq!(Template::parse("{{ data.ctl }}").unwrap().line(&fields).unwrap(), "ab c[31m");
}

#[test]
fn markup_is_what_looks_like_a_tag() {
    let has_markup = |source: &str| Template::parse(source).unwrap().has_markup();
    for source in ["<p>{{ data.x }}</p>", "a<br>b", "a<br/>b", "<a href=\"{{ data.x }}\">x</a>", "x</b>", "<\nx <h1\n>"]
    {
        assert!(has_markup(source), "{source}");
    }
    for source in [
        "",
        "{% if data.n < 5 %}low{% endif %}",
        "Ops <ops@example.com>",
        "<https://a.example/>",
        "<{{ data.x }}>",
        "<3",
    ] {
        assert!(!has_markup(source), "{source}");
    }
}

#[test]
fn an_event_cannot_lead_an_address_elsewhere() {
    let fields = Fields::of(r#"{"data":{"id":"../x?y=1#z é"}}"#);
    let url = Template::parse("https://h.example/a/{{ data.id }}/b").unwrap().url(&fields).unwrap();
    assert_eq!(url, "https://h.example/a/..%2Fx%3Fy%3D1%23z%20%C3%A9/b");
}

#[test]
fn a_template_that_is_one_expression_may_name_many() {
    let names = |source: &str| Template::parse(source).unwrap().names(&Fields::of(EVENT)).unwrap();
    assert_eq!(names("{{ data.who }}"), ["u1", "u2"]);
    assert_eq!(names("{{ data.env }}"), ["prod"]);
    assert_eq!(names("u-{{ data.n }}"), ["u-7"]);
    assert_eq!(names("fixed"), ["fixed"]);
    assert!(names("{{ data.nobody }}").is_empty() && names("{% if data.nobody %}u{% endif %}").is_empty());
    // Names are not changed into others, and an object is none.
    assert_eq!(names("{{ data.ctl }}"), ["a\u{7}b\r\nc\u{1b}[31m"]);
    assert_eq!(names("u {{ data.ctl }}"), ["u a\u{7}b\r\nc\u{1b}[31m"]);
    assert_eq!(names("{{ data.deep }}"), [""]);
}

#[test]
fn lines_end_as_they_do_anywhere() {
    let fields = Fields::of(r#"{"data":{"text":"a\rb\r\r\nc\n\rd\u0000e"}}"#);
    let template = Template::parse("{{ data.text }}").unwrap();
    assert_eq!(template.text(&fields).unwrap(), "a\nb\n\nc\n\nde");
    assert_eq!(template.line(&fields).unwrap(), "a b c de");
}

#[test]
fn what_is_no_template_is_refused_with_its_place() {
    for (source, part) in [
        ("a\n{{ data.", "line 2"),
        ("{% if x %}", "is no template"),
        ("{{ 'a' * 1000000 }}", "uses `*`"),
        ("{{ data.env ~ data.env }}", "uses `~`"),
        ("{{ data.env + data.env }}", "uses `+`"),
        ("{# {{ ' #}{{ 'a' * 5 }}", "uses `*`"),
        ("{{ {'a': {'b': 1}} * 5 }}", "uses `{`"),
        ("{% raw %}{{ ' {% endraw %}", "statement `raw`"),
        ("{% set x = 1 %}", "statement `set`"),
        ("{%- with x = 1 %}{% endwith %}", "statement `with`"),
        ("{% include 'x' %}", "statement `include`"),
        ("{% macro a() %}{% endmacro %}", "statement `macro`"),
        (&"x".repeat(TEMPLATE_BYTES + 1), "at most 16384"),
    ] {
        let why = Template::parse(source).expect_err(source);
        assert!(why.contains(part), "{source}: {why}");
    }
    assert!(Template::parse(&"x".repeat(TEMPLATE_BYTES)).is_ok());
}

#[test]
fn bombs_are_bounded_in_steps_and_in_size() {
    let many: Vec<u32> = (0..10_000).collect();
    let fields = Fields::of(&serde_json::json!({ "data": { "many": many, "long": "x".repeat(200_000) } }).to_string());
    let nested = "{% for a in data.many %}{% for b in data.many %}{% for c in data.many %}{{ a }}{% endfor %}\
        {% endfor %}{% endfor %}";
    assert!(Template::parse(nested).unwrap().text(&fields).unwrap_err().contains("fuel"));
    let long = Template::parse(&"{{ data.long }}".repeat(1000)).unwrap();
    assert_eq!(long.text(&fields).unwrap().len(), RENDERED_BYTES);
    let wide = Template::parse("{{ data.many|join(data.long) }}").unwrap();
    assert_eq!(wide.text(&fields).unwrap().len(), RENDERED_BYTES);
    let cut = Fields::of(&serde_json::json!({ "data": "é".repeat(RENDERED_BYTES) }).to_string());
    let text = Template::parse("x{{ data }}").unwrap().text(&cut).unwrap();
    assert_eq!(text.len(), RENDERED_BYTES - 1, "no half characters");
}

#[test]
fn a_slip_of_the_pen_is_seen_when_the_template_is_written() {
    for (source, word) in [
        ("{{ data.x|uper }}", "`uper`"),
        ("{{ data.x | tojson }}", "`tojson`"),
        ("{% if no %}{{ data.x|lower|nope(1) }}{% endif %}", "`nope`"),
        ("{{ nope() }}", "`nope`"),
        ("{{ data.x|default(range (3)) }}", "`range`"),
        ("{{ data.x.upper() }}", "`upper`"),
        ("{% if data.x is odd %}{% endif %}", "`odd`"),
        ("{% if data.x is not even %}{% endif %}", "`even`"),
    ] {
        let why = Template::parse(source).unwrap_err();
        assert!(why.contains(word), "{source}: {why}");
        Template::parse_stored(source).unwrap();
    }
    for source in [
        "{{ 'x|uper() is odd' }} nope() |uper {# |uper #}",
        "{% if (data.x is defined) and not (data.y is not none) or data.is and 1 in (data.who) %}x{% elif (1) %}{% endif %}",
        "{% for x in data.who if x is string %}{{ loop.index }}{{ loop.cycle('a', 'b') }}{{ x.first }}{% endfor %}",
        "{{ data.upper }}{{ data['uper'] }}{{ data.n|round(1)|int }}",
    ] {
        Template::parse(source).unwrap_or_else(|why| panic!("{source}: {why}"));
    }
    for filter in FILTERS {
        let used = Template::parse(&format!("{{{{ data.who|{filter} }}}}")).unwrap().text(&Fields::of(EVENT));
        assert!(!used.is_err_and(|why| why.contains("unknown filter")), "{filter}");
    }
    for test in TESTS {
        let template = Template::parse(&format!("{{% if data.n is {test} %}}{{% endif %}}")).unwrap();
        template.text(&Fields::of(EVENT)).unwrap();
    }
}
