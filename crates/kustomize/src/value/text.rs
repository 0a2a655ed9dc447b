//! A text with the way in which it was written.

use std::fmt;
use std::ops::Deref;

use super::Str;
use crate::yaml;

/// A text of a [`super::Value`]. Two are equal if they say the same, however they were written.
#[derive(Clone)]
pub struct Text {
    text: Str,
    style: TextStyle,
}

/// How a text was written, as far as a build comes out differently for it: what takes the place of a scalar takes its
/// style too, and kustomize writes objects out and reads them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TextStyle {
    /// It was set by a build. It has quotes if it needs some to be text.
    #[default]
    Made,
    /// Without quotes.
    Plain,
    /// With a tag, which is written and takes the place of quotes.
    Tagged,
    /// With a tag, and in quotes or as a block besides.
    TaggedQuoted,
    /// In quotes, or as a block whose lines stay.
    Quoted,
    /// As a block whose lines are folded. The lines come out otherwise once they are written and read again.
    Folded,
    /// In quotes or as a block, but still the number, boolean or time of a patch that took its place: what takes the place of
    /// that must be of its type. Once it is written and read again, it is a text.
    Retyped,
    /// The same as a block whose lines are folded.
    RetypedFolded,
    /// Without quotes and without a tag: a build set it where nothing was. It is a text as long as nobody looks; once it is
    /// written and read again, it is what a scalar without quotes is, a number perhaps, or null.
    Untagged,
    /// The same in brackets, where nothing and a time with colons get quotes once they are written again.
    UntaggedInBrackets,
    /// Without quotes, and it is a time.
    Time,
    /// A time with colons in brackets, where it gets quotes once it is written again.
    TimeInBrackets,
}

impl Text {
    pub(crate) fn new(text: impl Into<Str>, style: TextStyle) -> Self {
        Self { text: text.into(), style }
    }

    pub(crate) fn style(&self) -> TextStyle {
        self.style
    }

    /// The same text in another style.
    pub(crate) fn with_style(&self, style: TextStyle) -> Self {
        Self { text: self.text.clone(), style }
    }

    /// A text as YAML's writer writes it that is asked for no style.
    pub(crate) fn written(text: impl Into<Str>) -> Self {
        let text = text.into();
        let style = if yaml::is_written_plain(&text) { TextStyle::Plain } else { TextStyle::Quoted };
        Self { text, style }
    }

    /// A text of `data` as kustomize sets it: on several lines, it is written as a block.
    pub(crate) fn data(text: impl Into<Str>) -> Self {
        let text = text.into();
        let style = if text.contains('\n') { TextStyle::Quoted } else { TextStyle::Made };
        Self { text, style }
    }

    /// The style that something in its place takes over.
    pub(crate) fn kept_style(&self) -> TextStyle {
        match self.style {
            TextStyle::Made if yaml::is_quoted_when_set(self) => TextStyle::Quoted,
            TextStyle::Made
            | TextStyle::Tagged
            | TextStyle::TaggedQuoted
            | TextStyle::Untagged
            | TextStyle::UntaggedInBrackets => TextStyle::Plain,
            TextStyle::Retyped => TextStyle::Quoted,
            TextStyle::RetypedFolded => TextStyle::Folded,
            style => style,
        }
    }

    /// The same with another text in its place.
    pub(crate) fn replaced(&self, text: impl Into<Str>) -> Self {
        Self::new(text, self.kept_style())
    }

    /// The same where kustomize sets the field: it keeps the quotes and loses the tag.
    pub(crate) fn replaced_without_tag(&self, text: impl Into<Str>) -> Self {
        let style = match self.kept_style() {
            TextStyle::Plain => TextStyle::Untagged,
            quoted => quoted,
        };
        Self::new(text, style)
    }

    /// Is it a time rather than a text to YAML?
    pub(crate) fn is_time(&self) -> bool {
        matches!(self.style, TextStyle::Time | TextStyle::TimeInBrackets)
    }

    /// Is it the number, boolean or time of a patch in the quotes of a text?
    pub(crate) fn is_retyped(&self) -> bool {
        matches!(self.style, TextStyle::Retyped | TextStyle::RetypedFolded)
    }

    /// Has it neither quotes nor a tag, so that it is a text only as long as nobody looks?
    pub(crate) fn is_untagged(&self) -> bool {
        matches!(self.style, TextStyle::Untagged | TextStyle::UntaggedInBrackets)
    }

    /// Has it a tag?
    pub(crate) fn is_tagged(&self) -> bool {
        matches!(self.style, TextStyle::Tagged | TextStyle::TaggedQuoted)
    }

    /// The shared string.
    pub fn as_shared(&self) -> &Str {
        &self.text
    }

    /// The shared string.
    pub fn into_shared(self) -> Str {
        self.text
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl<T: Into<Str>> From<T> for Text {
    fn from(text: T) -> Self {
        Self::new(text, TextStyle::default())
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}
