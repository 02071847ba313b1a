//! Charts as SVG, drawn on the server: bars that stretch with the page, each with its value on hover.

use maud::{Markup, html};
use tidings_core::time::{Timestamp, iso_millis};

const HEIGHT: f64 = 100.0;

/// One bar.
pub struct Bar {
    pub start: Timestamp,
    pub value: f64,
    /// Of `value`, the part that is bad.
    pub bad: f64,
    /// What it says on hover.
    pub label: String,
}

/// A chart with its heading; `summary` is what it says to those who cannot see it.
#[must_use]
pub fn bars(title: &str, unit: &str, summary: &str, bars: &[Bar], show: impl Fn(f64) -> String) -> Markup {
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let top = nice_top(most);
    let (first, last) = (bars.first(), bars.last());
    html! {
        figure.chart {
            figcaption { span { (title) } span.faint { (unit) } }
            div.plot {
                span.top aria-hidden="true" { (show(top)) }
                svg viewBox=(format!("0 0 {} {HEIGHT}", bars.len() * 4)) preserveAspectRatio="none" role="img"
                    aria-label=(format!("{title}: {summary}")) {
                    line.grid x1="0" x2=(bars.len() * 4) y1="0.5" y2="0.5" {}
                    line.grid x1="0" x2=(bars.len() * 4) y1="50" y2="50" {}
                    @for (place, bar) in bars.iter().enumerate() {
                        @if bar.value > 0.0 {
                            (column(place, bar, top))
                        }
                    }
                    line.base x1="0" x2=(bars.len() * 4) y1=(HEIGHT) y2=(HEIGHT) {}
                }
            }
            @if let (Some(first), Some(last)) = (first, last) {
                div.axis aria-hidden="true" { (moment(first.start)) (moment(last.start)) }
            }
        }
    }
}

fn column(place: usize, bar: &Bar, top: f64) -> Markup {
    let height = (bar.value / top * HEIGHT).clamp(1.0, HEIGHT);
    let bad = (bar.bad / top * HEIGHT).clamp(0.0, height);
    html! {
        g {
            title { (bar.label) }
            @if height > bad {
                rect.bar x=(place * 4) width="3" y=(format!("{:.1}", HEIGHT - height))
                    height=(format!("{:.1}", height - bad)) {}
            }
            @if bad > 0.0 {
                rect.bad x=(place * 4) width="3" y=(format!("{:.1}", HEIGHT - bad)) height=(format!("{bad:.1}")) {}
            }
        }
    }
}

fn moment(at: Timestamp) -> Markup {
    let exact = iso_millis(at);
    let shown = exact.chars().skip(11).take(5).collect::<String>();
    html! { time datetime=(exact) title=(exact) data-form="short" { (shown) " UTC" } }
}

/// The end of the scale: 1, 2 or 5 times a power of ten.
fn nice_top(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(most.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|top| *top >= most).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_ends_at_a_round_number() {
        for (most, top) in [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (1.1, 2.0), (37.0, 50.0), (999.0, 1000.0)] {
            assert!((nice_top(most) - top).abs() < 1e-9, "{most}: {}", nice_top(most));
        }
    }
}
