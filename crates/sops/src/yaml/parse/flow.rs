//! What is in brackets and braces.

use super::{About, Event, Next, Parser, State, What, empty};
use crate::yaml::scan::Token;

impl Parser<'_> {
    pub(super) fn flow_item(&mut self, first: bool) -> Next {
        if first {
            self.take()?;
        }
        if let Some(event) = self.flow_end(&Token::FlowSequenceEnd, What::SequenceEnd)? {
            return Ok(event);
        }
        if !first && self.takes(&Token::FlowEntry)?.is_none() {
            return Self::error(self.peek()?.1, "expected ',' or ']'");
        }
        if let Some(mark) = self.takes(&Token::Key)? {
            self.state = State::FlowItemKey;
            return Ok(Event::new(What::Mapping { about: About::default(), flow: true }, mark));
        }
        if let Some(event) = self.flow_end(&Token::FlowSequenceEnd, What::SequenceEnd)? {
            return Ok(event);
        }
        self.states.push(State::FlowItem { first: false });
        self.node(false, false)
    }

    /// The end of what is in brackets, if it follows.
    fn flow_end(&mut self, end: &Token, what: What) -> Result<Option<Event>, super::Problem> {
        let (token, mark) = self.peek()?;
        if token != end {
            return Ok(None);
        }
        self.pop();
        let comments = self.take_comments();
        self.take()?;
        Ok(Some(Event::new(what, mark).with(comments)))
    }

    pub(super) fn flow_item_key(&mut self) -> Next {
        let (token, mark) = self.peek()?;
        if matches!(token, Token::Value | Token::FlowEntry | Token::FlowSequenceEnd) {
            // libyaml takes this token for the key.
            self.take()?;
            self.state = State::FlowItemValue;
            return Ok(empty(mark));
        }
        self.states.push(State::FlowItemValue);
        self.node(false, false)
    }

    pub(super) fn flow_item_value(&mut self) -> Next {
        if self.takes(&Token::Value)?.is_some() {
            return self.node_or_empty(State::FlowItemEnd, false, None, |token| {
                matches!(token, Token::FlowEntry | Token::FlowSequenceEnd)
            });
        }
        let (_, mark) = self.peek()?;
        self.state = State::FlowItemEnd;
        Ok(empty(mark))
    }

    pub(super) fn flow_key(&mut self, first: bool) -> Next {
        if first {
            self.take()?;
        }
        if let Some(event) = self.flow_end(&Token::FlowMappingEnd, What::MappingEnd)? {
            return Ok(event);
        }
        if !first && self.takes(&Token::FlowEntry)?.is_none() {
            return Self::error(self.peek()?.1, "expected ',' or '}'");
        }
        if self.takes(&Token::Key)?.is_some() {
            let next = State::FlowValue { empty: false };
            return self.node_or_empty(next, false, None, |token| {
                matches!(token, Token::Value | Token::FlowEntry | Token::FlowMappingEnd)
            });
        }
        if let Some(event) = self.flow_end(&Token::FlowMappingEnd, What::MappingEnd)? {
            return Ok(event);
        }
        self.states.push(State::FlowValue { empty: true });
        self.node(false, false)
    }

    pub(super) fn flow_value(&mut self, nothing: bool) -> Next {
        let next = State::FlowKey { first: false };
        if !nothing && self.takes(&Token::Value)?.is_some() {
            return self.node_or_empty(next, false, None, |token| {
                matches!(token, Token::FlowEntry | Token::FlowMappingEnd)
            });
        }
        let (_, mark) = self.peek()?;
        self.state = next;
        Ok(empty(mark))
    }
}
