//! Compares recordings with files, and rewrites them on request.

use std::path::Path;

const ACCEPT: &str = "SIGNET_ACCEPT";
const MOST: usize = 5;
const AROUND: usize = 3;

pub fn assert_same(name: &str, recorded: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/recorded").join(format!("{name}.txt"));
    if std::env::var_os(ACCEPT).is_some_and(|value| value == "1") {
        std::fs::write(&path, recorded).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    if known == recorded {
        return;
    }
    panic!(
        "the answers differ from {}\n{}\nIf this is meant: {ACCEPT}=1 cargo test --test it -- recorded, then read the \
         difference of the files.",
        path.display(),
        difference(&known, recorded)
    );
}

fn difference(known: &str, recorded: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (known.lines().collect(), recorded.lines().collect());
    let mut i = 0;
    let mut j = 0;
    let mut hunks = 0;
    let mut text = String::new();
    while (i < old.len() || j < new.len()) && hunks < MOST {
        if old.get(i) == new.get(j) {
            (i, j) = (i + 1, j + 1);
            continue;
        }
        let (gone, come) = step(&old[i..], &new[j..]);
        text += &format!("@@ -{} +{} @@\n", i + 1, j + 1);
        let line = |mark: char, line: &&str| format!("{mark}{line}\n");
        text.extend(old[i.saturating_sub(AROUND)..i].iter().map(|l| line(' ', l)));
        text.extend(old[i..i + gone].iter().map(|l| line('-', l)));
        text.extend(new[j..j + come].iter().map(|l| line('+', l)));
        (i, j) = (i + gone, j + come);
        text.extend(old[i..].iter().take(AROUND).map(|l| line(' ', l)));
        hunks += 1;
    }
    if hunks == MOST {
        text += "…\n";
    }
    if text.is_empty() { "only the ends of lines differ\n".to_owned() } else { text }
}

/// The number of removed and added lines until both texts agree again.
fn step(old: &[&str], new: &[&str]) -> (usize, usize) {
    const COMMON: usize = 2;
    const FARTHEST: usize = 400;
    for distance in 1..FARTHEST {
        for gone in 0..=distance {
            let come = distance - gone;
            let (Some(old), Some(new)) = (old.get(gone..), new.get(come..)) else { continue };
            let common = old.iter().zip(new).take(COMMON).take_while(|(one, other)| one == other).count();
            if common == COMMON || common == old.len().min(new.len()) && old.len() == new.len() {
                return (gone, come);
            }
        }
    }
    (old.len(), new.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_shown_with_context_lines() {
        let known = "a\nb\nc\nd\ne\nf\ng\nh";
        assert_eq!(difference(known, "a\nb\nc\nd\nX\nY\nf\ng\nh"), "@@ -5 +5 @@\n b\n c\n d\n-e\n+X\n+Y\n f\n g\n h\n");
        assert_eq!(difference(known, "a\nb\nc\nd\ne\nf\ng\nh\ni"), "@@ -9 +9 @@\n f\n g\n h\n+i\n");
        assert_eq!(difference("a\nb", "b"), "@@ -1 +1 @@\n-a\n b\n");
    }
}
