//! The top level of the text: directives, variables with their initialisers, headers of
//! functions.

use super::ParseError;
use super::lexer::{Placed, Token, lex};
use super::syntax::{
    Function, Initial, Operand, RegisterId, Space, Tree, Type, Variable, VariableId,
};
use std::collections::HashMap;

/// Maximum number of registers of a function; a text that declares more is an error or an attack.
const MOST_REGISTERS: u64 = 1 << 20;
/// Maximum number of bytes of a variable.
const MOST_BYTES: u64 = 1 << 32;

/// Meaning of a name in a scope.
#[derive(Clone, Copy)]
pub(super) enum Symbol {
    Register(RegisterId),
    Variable(VariableId),
}

/// Names of one `{ }`.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) id: u32,
    pub(super) names: HashMap<String, Symbol>,
    /// `%r<10>`: prefix → (first register, count)
    pub(super) ranges: HashMap<String, (RegisterId, u64)>,
}

pub(super) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Placed<'a>>,
    at: usize,
    pub(super) tree: Tree,
    pub(super) module_names: HashMap<String, u32>,
    pub(super) scopes: Vec<Scope>,
    pub(super) function: Function,
}

type Result<T> = std::result::Result<T, ParseError>;

/// Parses a PTX text; returns the tree and the comment lines.
pub(crate) fn parse(text: &str) -> Result<(Tree, Vec<(u32, String)>)> {
    let lexed = lex(text)?;
    let comments = lexed.comments.iter().map(|&(line, what)| (line, what.to_owned())).collect();
    let mut parser = Parser {
        text,
        tokens: lexed.tokens,
        at: 0,
        tree: Tree::default(),
        module_names: HashMap::new(),
        scopes: Vec::new(),
        function: blank("", 0, false),
    };
    parser.module()?;
    Ok((parser.tree, comments))
}

fn blank(name: &str, line: u32, entry: bool) -> Function {
    Function {
        name: name.to_owned(),
        entry,
        line,
        variables: Vec::new(),
        returns: 0,
        parameters: 0,
        registers: Vec::new(),
        body: None,
        scopes: vec![0],
        required_threads: None,
        most_threads: None,
        required_cluster: None,
        register_limit: None,
    }
}

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> Token<'a> {
        self.tokens[self.at].token
    }

    pub(super) fn peek_after(&self, tokens: usize) -> Token<'a> {
        self.tokens.get(self.at + tokens).map_or(Token::End, |t| t.token)
    }

    pub(super) fn place(&self) -> (u32, u32) {
        let token = &self.tokens[self.at];
        (token.line, token.column)
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        let token = self.tokens[self.at].token;
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        let (line, column) = self.place();
        Err(ParseError::new(self.text, line, column, message))
    }

    /// The error that something else is expected here.
    pub(super) fn wanted<T>(&self, what: &str) -> Result<T> {
        let found = match self.peek() {
            Token::Word(word) => format!("`{word}`"),
            Token::Dotted(word) => format!("`.{word}`"),
            Token::Integer(value) => format!("`{value}`"),
            Token::Single(bits) => format!("`0f{bits:08X}`"),
            Token::Double(bits) => format!("`0d{bits:016X}`"),
            Token::Text(text) => format!("{text:?}"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end of the text".to_owned(),
        };
        self.error(format!("wanted {what}, found {found}"))
    }

    pub(super) fn eats(&mut self, sign: char) -> bool {
        let found = self.peek() == Token::Sign(sign);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn sign(&mut self, sign: char) -> Result<()> {
        if self.eats(sign) { Ok(()) } else { self.wanted(&format!("`{sign}`")) }
    }

    pub(super) fn word(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            _ => self.wanted(what),
        }
    }

    pub(super) fn integer(&mut self, what: &str) -> Result<u64> {
        let negative = self.eats('-');
        match self.peek() {
            Token::Integer(value) => {
                self.next();
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            _ => self.wanted(what),
        }
    }

    fn module(&mut self) -> Result<()> {
        let mut has_version = false;
        loop {
            let Token::Dotted(directive) = self.peek() else {
                if self.peek() == Token::End {
                    return if has_version {
                        Ok(())
                    } else {
                        self.error("a PTX text begins with `.version`")
                    };
                }
                return self.wanted("a directive");
            };
            match directive {
                "version" => {
                    has_version = true;
                    self.next();
                    match self.next() {
                        Token::Double(bits) => self.tree.version = f64::from_bits(bits).to_string(),
                        _ => return self.wanted("a version such as 8.0"),
                    }
                }
                "target" => {
                    self.next();
                    self.tree.target = self.word("a target such as sm_80")?.to_owned();
                    while self.eats(',') {
                        self.word("a target option")?;
                    }
                }
                "address_size" => {
                    self.next();
                    if self.integer("64")? != 64 {
                        return self.error("only 64-bit addresses are supported");
                    }
                }
                "file" | "loc" | "section" => self.debug_directive()?,
                "pragma" => self.pragma()?,
                "alias" => return self.error("`.alias` is not supported"),
                "visible" | "extern" | "weak" | "common" => {
                    self.next();
                    let external = directive == "extern";
                    self.linked(external)?;
                }
                _ => self.linked(false)?,
            }
        }
    }

    /// `.file`, `.loc` and `.section` describe source lines and do not affect execution.
    pub(super) fn debug_directive(&mut self) -> Result<()> {
        let (line, _) = self.place();
        let Token::Dotted(directive) = self.next() else { return self.wanted("a directive") };
        if directive == "section" {
            while !matches!(self.peek(), Token::Sign('{') | Token::End) {
                self.next();
            }
            while !matches!(self.peek(), Token::Sign('}') | Token::End) {
                self.next();
            }
            return self.sign('}');
        }
        while self.place().0 == line && self.peek() != Token::End {
            self.next();
        }
        Ok(())
    }

    pub(super) fn pragma(&mut self) -> Result<()> {
        self.next();
        while let Token::Text(_) = self.peek() {
            self.next();
            self.eats(',');
        }
        self.sign(';')
    }

    fn linked(&mut self, external: bool) -> Result<()> {
        match self.peek() {
            Token::Dotted("entry") => {
                self.next();
                self.function_header(true)
            }
            Token::Dotted("func") => {
                self.next();
                self.function_header(false)
            }
            Token::Dotted("global") => self.module_variables(Space::Global, external),
            Token::Dotted("const") => self.module_variables(Space::Const, external),
            Token::Dotted("shared") => self.module_variables(Space::Shared, external),
            Token::Dotted(other) => {
                self.error(format!("the directive `.{other}` is not supported here"))
            }
            _ => self.wanted("a directive"),
        }
    }

    fn module_variables(&mut self, space: Space, external: bool) -> Result<()> {
        self.next();
        for mut variable in self.variables(space)? {
            if external {
                if space != Space::Shared {
                    let name = &variable.name;
                    return self.error(format!(
                        "`{name}` is defined in another module, and only one is loaded"
                    ));
                }
                variable.dynamic = variable.bytes == 0;
            } else if variable.bytes == 0 {
                return self.error(format!("`{}` has no size", variable.name));
            }
            if self.module_names.contains_key(&variable.name) {
                return self.error(format!("`{}` is declared twice", variable.name));
            }
            self.module_names.insert(variable.name.clone(), self.tree.variables.len() as u32);
            self.tree.variables.push(variable);
        }
        Ok(())
    }

    /// `.align 4 .b8 a[16] = {…}, b;` after the space.
    pub(super) fn variables(&mut self, space: Space) -> Result<Vec<Variable>> {
        let mut variables = Vec::new();
        let (align, ty) = self.variable_type()?;
        loop {
            variables.push(self.declarator(space, align, ty, true)?);
            if !self.eats(',') {
                break;
            }
        }
        self.sign(';')?;
        Ok(variables)
    }

    fn variable_type(&mut self) -> Result<(Option<u32>, (Type, u32))> {
        let mut align = None;
        let mut vector = 1;
        loop {
            let Token::Dotted(word) = self.peek() else { return self.wanted("a type") };
            self.next();
            match word {
                "align" => match self.integer("an alignment")? {
                    value @ 1..=4096 if value.is_power_of_two() => align = Some(value as u32),
                    _ => return self.error("an alignment is a power of two up to 4096"),
                },
                "v2" => vector = 2,
                "v4" => vector = 4,
                "attribute" => {
                    self.sign('(')?;
                    while !self.eats(')') {
                        if self.peek() == Token::End {
                            return self.wanted("`)`");
                        }
                        self.next();
                    }
                }
                _ => match Type::named(word) {
                    Some(ty) if ty.bits() >= 8 => return Ok((align, (ty, vector))),
                    _ => {
                        return self
                            .error(format!("a variable of type `.{word}` is not supported"));
                    }
                },
            }
        }
    }

    fn declarator(
        &mut self,
        space: Space,
        align: Option<u32>,
        (ty, vector): (Type, u32),
        may_initialise: bool,
    ) -> Result<Variable> {
        let (line, _) = self.place();
        let name = self.word("a name")?.to_owned();
        let element = ty.bytes() * vector;
        let mut count = 1u64;
        while self.eats('[') {
            let extent =
                if self.peek() == Token::Sign(']') { 0 } else { self.integer("an extent")? };
            self.sign(']')?;
            count = count.saturating_mul(extent);
        }
        let bytes = count.saturating_mul(u64::from(element));
        if bytes > MOST_BYTES {
            return self
                .error(format!("`{name}` has {bytes} bytes; at most {MOST_BYTES} are supported"));
        }
        let align = align.unwrap_or(element).max(ty.bytes());
        let mut initial = Vec::new();
        if may_initialise && self.eats('=') {
            if !matches!(space, Space::Global | Space::Const) {
                return self.error(format!("a {space} variable has no initial value"));
            }
            self.initialiser(ty, &mut initial, 0)?;
            let given: u64 = initial.iter().map(Initial::bytes).sum();
            if given > bytes {
                return self.error(format!("`{name}` has {bytes} bytes and is given {given}"));
            }
        }
        Ok(Variable {
            name,
            space,
            align,
            bytes,
            dynamic: false,
            initial,
            register: None,
            pointer: false,
            line,
        })
    }

    fn initialiser(&mut self, ty: Type, into: &mut Vec<Initial>, depth: u32) -> Result<()> {
        if depth > 16 {
            return self.error("initialisers are nested too deeply");
        }
        if self.eats('{') {
            while !self.eats('}') {
                self.initialiser(ty, into, depth + 1)?;
                if !self.eats(',') {
                    self.sign('}')?;
                    break;
                }
            }
            return Ok(());
        }
        let bytes = ty.bytes() as usize;
        let value = match (self.peek(), ty) {
            (Token::Word(word), _) => {
                self.next();
                let (name, wrapped) = if word == "generic" && self.eats('(') {
                    (self.word("a variable")?, true)
                } else {
                    (word, false)
                };
                if wrapped {
                    self.sign(')')?;
                }
                let offset = if self.eats('+') { self.integer("an offset")? as i64 } else { 0 };
                let Some(&variable) = self.module_names.get(name) else {
                    return self.error(format!("no variable `{name}` is declared before"));
                };
                into.push(Initial::Address { variable, offset, bytes: bytes as u32 });
                return Ok(());
            }
            (Token::Single(bits), Type::Float(64)) => f64::from(f32::from_bits(bits)).to_bits(),
            (Token::Double(bits), Type::Float(32)) => {
                u64::from((f64::from_bits(bits) as f32).to_bits())
            }
            (Token::Single(bits), _) => u64::from(bits),
            (Token::Double(bits), _) => bits,
            _ => {
                let value = self.integer("an initial value")?;
                match ty {
                    Type::Float(32) => u64::from((value as i64 as f32).to_bits()),
                    Type::Float(64) => (value as i64 as f64).to_bits(),
                    _ => value,
                }
            }
        };
        if matches!(self.peek(), Token::Double(_) | Token::Single(_)) {
            self.next();
        }
        let data = &value.to_le_bytes()[..bytes.min(8)];
        match into.last_mut() {
            Some(Initial::Bytes(before)) => before.extend_from_slice(data),
            _ => into.push(Initial::Bytes(data.to_vec())),
        }
        Ok(())
    }

    fn function_header(&mut self, entry: bool) -> Result<()> {
        let (line, _) = self.place();
        self.function = blank("", line, entry);
        self.scopes = vec![Scope::default()];
        if !entry && self.peek() == Token::Sign('(') {
            self.parameters(Space::Local)?;
            self.function.returns = self.function.variables.len();
        }
        self.function.name = self.word("the function's name")?.to_owned();
        if self.peek() == Token::Sign('(') {
            self.parameters(if entry { Space::Param } else { Space::Local })?;
        }
        self.function.parameters = self.function.variables.len() - self.function.returns;
        loop {
            match self.peek() {
                Token::Dotted("reqntid") => {
                    self.next();
                    self.function.required_threads = Some(self.extents()?);
                }
                Token::Dotted("maxntid") => {
                    self.next();
                    self.function.most_threads = Some(self.extents()?);
                }
                Token::Dotted("minnctapersm" | "maxnctapersm" | "maxclusterrank") => {
                    self.next();
                    self.integer("a number")?;
                }
                Token::Dotted("maxnreg") => {
                    self.next();
                    let limit = self.integer("a number of registers")?;
                    self.function.register_limit = u32::try_from(limit).ok();
                }
                Token::Dotted("reqnctapercluster") => {
                    self.next();
                    self.function.required_cluster = Some(self.extents()?);
                }
                // The launch gives the extents of clusters, if the kernel does not.
                Token::Dotted("noreturn" | "explicitcluster") => {
                    self.next();
                }
                Token::Dotted("pragma") => self.pragma()?,
                _ => break,
            }
        }
        if !self.eats(';') {
            self.sign('{')?;
            let body = self.body()?;
            self.function.body = Some(body);
        }
        let function = std::mem::replace(&mut self.function, blank("", 0, false));
        if let Some(known) =
            self.tree.functions.iter_mut().find(|known| known.name == function.name)
        {
            if known.body.is_some() && function.body.is_some() {
                return self.error(format!("the function `{}` is defined twice", function.name));
            }
            if function.body.is_some() {
                *known = function;
            }
        } else {
            self.tree.functions.push(function);
        }
        Ok(())
    }

    fn extents(&mut self) -> Result<[u32; 3]> {
        let mut extents = [1; 3];
        for (axis, extent) in extents.iter_mut().enumerate() {
            if axis > 0 && !self.eats(',') {
                break;
            }
            *extent = u32::try_from(self.integer("a number of threads")?).unwrap_or(u32::MAX);
        }
        Ok(extents)
    }

    /// `(.param .u64 .ptr .global .align 16 a, .reg .b32 %x)`
    fn parameters(&mut self, space: Space) -> Result<()> {
        self.sign('(')?;
        while !self.eats(')') {
            let in_register = match self.next() {
                Token::Dotted("param") => false,
                Token::Dotted("reg") => true,
                _ => return self.wanted("`.param` or `.reg`"),
            };
            let mut align = None;
            if let (Token::Dotted("align"), Token::Integer(value)) =
                (self.peek(), self.peek_after(1))
            {
                self.next();
                self.next();
                align = u32::try_from(value).ok().filter(|a| a.is_power_of_two() && *a <= 4096);
            }
            let ty = match self.next() {
                Token::Dotted(word) => Type::named(word),
                _ => None,
            };
            let Some(ty) = ty else { return self.wanted("a type") };
            let mut pointer = false;
            while let Token::Dotted(word) = self.peek() {
                self.next();
                match word {
                    "ptr" => pointer = true,
                    "global" | "shared" | "const" | "local" if pointer => {}
                    "align" => {
                        self.integer("an alignment")?;
                    }
                    _ => return self.error(format!("`.{word}` is not supported on a parameter")),
                }
            }
            let mut variable = self.declarator(space, align, (ty, 1), false)?;
            variable.pointer = pointer;
            let name = variable.name.clone();
            if in_register {
                let register = self.new_registers(ty, 1)?;
                variable.register = Some(register);
                self.declare(&name, Symbol::Register(register))?;
            } else {
                if variable.bytes == 0 {
                    return self.error(format!("the parameter `{name}` has no size"));
                }
                let id = VariableId::Function(self.function.variables.len() as u32);
                self.declare(&name, Symbol::Variable(id))?;
            }
            self.function.variables.push(variable);
            if !self.eats(',') {
                self.sign(')')?;
                break;
            }
        }
        Ok(())
    }

    pub(super) fn new_registers(&mut self, ty: Type, count: u64) -> Result<RegisterId> {
        let first = self.function.registers.len() as u64;
        if first.saturating_add(count) > MOST_REGISTERS {
            return self.error(format!("a function has at most {MOST_REGISTERS} registers"));
        }
        let width = match ty.bits() {
            1 => 1,
            8 | 16 => 16,
            32 => 32,
            64 => 64,
            bits => return self.error(format!("registers of {bits} bits are not supported")),
        };
        self.function.registers.resize((first + count) as usize, width);
        Ok(first as RegisterId)
    }

    pub(super) fn declare(&mut self, name: &str, symbol: Symbol) -> Result<()> {
        let scope = self.scopes.last_mut().expect("a function is being read, so it has a scope");
        if scope.names.insert(name.to_owned(), symbol).is_some() {
            return self.error(format!("`{name}` is declared twice"));
        }
        Ok(())
    }

    /// The meaning of a name, from the innermost scope outwards.
    pub(super) fn lookup(&self, name: &str) -> Option<Operand> {
        for scope in self.scopes.iter().rev() {
            match scope.names.get(name) {
                Some(&Symbol::Register(register)) => return Some(Operand::Register(register)),
                Some(&Symbol::Variable(variable)) => return Some(Operand::Variable(variable, 0)),
                None => {}
            }
            // `%r12` is number 12 of `%r<20>`, but `%r1<20>` has it as number 2 too: try every
            // split.
            let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
            for cut in name.len() - digits..name.len() {
                let (prefix, number) = name.split_at(cut);
                if let (Some(&(first, count)), Ok(number)) =
                    (scope.ranges.get(prefix), number.parse::<u64>())
                    && number < count
                    && (cut + 1 == name.len() || !name[cut..].starts_with('0'))
                {
                    return Some(Operand::Register(first + number as u32));
                }
            }
        }
        self.module_names.get(name).map(|&id| Operand::Variable(VariableId::Module(id), 0))
    }
}

impl Initial {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Initial::Bytes(bytes) => bytes.len() as u64,
            Initial::Address { bytes, .. } => u64::from(*bytes),
        }
    }
}
