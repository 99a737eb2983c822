//! Bodies of functions: declarations, labels, instructions and their operands.

use super::ParseError;
use super::lexer::Token;
use super::parser::{Parser, Scope, Symbol};
use super::syntax::{Instruction, Operand, Space, Special, Statement, Type, VariableId};

type Result<T> = std::result::Result<T, ParseError>;

/// Maximum nesting of scopes and vectors.
const DEEPEST: usize = 64;

impl Parser<'_> {
    /// Statements up to the `}` of the function, which is consumed.
    pub(super) fn body(&mut self) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        let outermost = self.scopes.len();
        loop {
            match self.peek() {
                Token::Sign('{') => {
                    self.next();
                    if self.scopes.len() > DEEPEST {
                        return self.error(format!("scopes are nested deeper than {DEEPEST}"));
                    }
                    let parent = self.scopes.last().expect("the function's scope is open").id;
                    let id = self.function.scopes.len() as u32;
                    self.function.scopes.push(parent);
                    self.scopes.push(Scope { id, ..Scope::default() });
                }
                Token::Sign('}') => {
                    self.next();
                    if self.scopes.len() == outermost {
                        return Ok(statements);
                    }
                    self.scopes.pop();
                }
                Token::Sign(';') => {
                    self.next();
                }
                Token::Dotted(directive) => self.body_directive(directive)?,
                Token::Word(word) if self.peek_after(1) == Token::Sign(':') => {
                    self.next();
                    self.next();
                    let scope = self.scopes.last().expect("the function's scope is open").id;
                    match self.peek() {
                        Token::Dotted("branchtargets") => {
                            self.next();
                            let mut labels = Vec::new();
                            while !self.eats(';') {
                                labels.push(self.word("a label")?.to_owned());
                                if !self.eats(',') {
                                    self.sign(';')?;
                                    break;
                                }
                            }
                            statements.push(Statement::Targets {
                                name: word.to_owned(),
                                labels,
                                scope,
                            });
                        }
                        Token::Dotted(other @ ("callprototype" | "calltargets")) => {
                            return self.error(format!(
                                "`.{other}`: calls through pointers are not supported"
                            ));
                        }
                        _ => statements.push(Statement::Label(word.to_owned(), scope)),
                    }
                }
                Token::Word(_) | Token::Sign('@') => {
                    let instruction = self.instruction()?;
                    statements.push(Statement::Instruction(instruction));
                }
                _ => return self.wanted("an instruction, a label, a declaration or `}`"),
            }
        }
    }

    fn body_directive(&mut self, directive: &str) -> Result<()> {
        let space = match directive {
            "reg" => return self.registers(),
            "loc" | "file" => return self.debug_directive(),
            "pragma" => return self.pragma(),
            "shared" => Space::Shared,
            // Parameters of calls live in the thread's local memory.
            "local" | "param" => Space::Local,
            _ => return self.error(format!("the directive `.{directive}` is not supported here")),
        };
        self.next();
        for variable in self.variables(space)? {
            if variable.bytes == 0 {
                return self.error(format!("`{}` has no size", variable.name));
            }
            let id = VariableId::Function(self.function.variables.len() as u32);
            self.declare(&variable.name, Symbol::Variable(id))?;
            self.function.variables.push(variable);
        }
        Ok(())
    }

    /// `.reg .b32 %r<10>, %SP;`
    fn registers(&mut self) -> Result<()> {
        self.next();
        let ty = match self.peek() {
            Token::Dotted(word @ ("v2" | "v4")) => {
                return self
                    .error(format!("registers that are vectors (`.{word}`) are not supported"));
            }
            Token::Dotted(word) => Type::named(word),
            _ => None,
        };
        let Some(ty) = ty else { return self.wanted("a type of registers") };
        self.next();
        loop {
            let name = self.word("a register's name")?;
            if self.eats('<') {
                let count = self.integer("a number of registers")?;
                self.sign('>')?;
                let first = self.new_registers(ty, count)?;
                let scope = self.scopes.last_mut().expect("the function's scope is open");
                if scope.ranges.insert(name.to_owned(), (first, count)).is_some() {
                    return self.error(format!("the registers `{name}` are declared twice"));
                }
            } else {
                let register = self.new_registers(ty, 1)?;
                self.declare(name, Symbol::Register(register))?;
            }
            if !self.eats(',') {
                return self.sign(';');
            }
        }
    }

    fn instruction(&mut self) -> Result<Instruction> {
        let mut guard = None;
        if self.eats('@') {
            let negated = self.eats('!');
            let name = self.word("a predicate")?;
            guard = match self.lookup(name) {
                Some(Operand::Register(register))
                    if self.function.registers[register as usize] == 1 =>
                {
                    Some((register, negated))
                }
                _ => return self.error(format!("`{name}` is no predicate")),
            };
        }
        let (line, column) = self.place();
        let scope = self.scopes.last().expect("the function's scope is open").id;
        let opcode = self.word("an instruction")?.to_owned();
        let mut modifiers = Vec::new();
        while let Token::Dotted(modifier) = self.peek() {
            self.next();
            modifiers.push(modifier.to_owned());
        }
        let mut operands = Vec::new();
        while !self.eats(';') {
            operands.push(self.operand(0)?);
            if !self.eats(',') {
                self.sign(';')?;
                break;
            }
        }
        Ok(Instruction { guard, opcode, modifiers, operands, line, column, scope })
    }

    fn operand(&mut self, depth: usize) -> Result<Operand> {
        if depth > DEEPEST {
            return self.error(format!("operands are nested deeper than {DEEPEST}"));
        }
        let first = match self.peek() {
            Token::Sign('{') => {
                self.next();
                return Ok(Operand::Vector(self.operands_up_to('}', depth)?));
            }
            Token::Sign('(') => {
                self.next();
                return Ok(Operand::List(self.operands_up_to(')', depth)?));
            }
            Token::Sign('[') => {
                self.next();
                let base = self.operand(depth + 1)?;
                // A variable's operand has consumed its offset.
                let offset = self.offset()?;
                if self.eats(',') {
                    let coordinates = match self.operand(depth + 1)? {
                        Operand::Vector(coordinates) if offset == 0 => coordinates,
                        _ => return self.error("a tensor map is followed by coordinates"),
                    };
                    self.sign(']')?;
                    return Ok(Operand::Tensor(Box::new(base), coordinates));
                }
                self.sign(']')?;
                return Ok(Operand::Address(Box::new(base), offset));
            }
            Token::Sign('!') => {
                self.next();
                return Ok(Operand::Not(Box::new(self.operand(depth + 1)?)));
            }
            Token::Sign('-' | '+' | '~') => return self.signed_constant(),
            Token::Integer(value) => {
                self.next();
                Operand::Integer(value)
            }
            Token::Single(bits) => {
                self.next();
                Operand::Single(bits)
            }
            Token::Double(bits) => {
                self.next();
                Operand::Double(bits)
            }
            Token::Word("_") => {
                self.next();
                Operand::Sink
            }
            Token::Word(word) => {
                self.next();
                self.named(word)?
            }
            _ => return self.wanted("an operand"),
        };
        if matches!(first, Operand::Variable(..)) {
            let Operand::Variable(id, _) = first else { unreachable!("matched above") };
            let offset = self.offset()?;
            return Ok(Operand::Variable(id, offset));
        }
        if self.eats('|') {
            let second = self.operand(depth + 1)?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn operands_up_to(&mut self, end: char, depth: usize) -> Result<Vec<Operand>> {
        let mut operands = Vec::new();
        while !self.eats(end) {
            operands.push(self.operand(depth + 1)?);
            if !self.eats(',') {
                self.sign(end)?;
                break;
            }
        }
        Ok(operands)
    }

    fn signed_constant(&mut self) -> Result<Operand> {
        let Token::Sign(sign) = self.next() else { return self.wanted("a sign") };
        let value = match self.peek() {
            Token::Integer(value) => Operand::Integer(match sign {
                '-' => value.wrapping_neg(),
                '~' => !value,
                _ => value,
            }),
            Token::Single(bits) if sign != '~' => {
                Operand::Single(if sign == '-' { bits ^ (1 << 31) } else { bits })
            }
            Token::Double(bits) if sign != '~' => {
                Operand::Double(if sign == '-' { bits ^ (1 << 63) } else { bits })
            }
            _ => return self.wanted("a number"),
        };
        self.next();
        Ok(value)
    }

    fn offset(&mut self) -> Result<i64> {
        let mut offset = 0i64;
        loop {
            let negative = match self.peek() {
                Token::Sign('+') => false,
                Token::Sign('-') => true,
                _ => return Ok(offset),
            };
            self.next();
            let value = self.integer("an offset")? as i64;
            offset = offset.wrapping_add(if negative { value.wrapping_neg() } else { value });
        }
    }

    fn named(&mut self, word: &str) -> Result<Operand> {
        if let Some(known) = self.lookup(word) {
            return Ok(known);
        }
        if word == "WARP_SZ" {
            return Ok(Operand::Integer(32));
        }
        if word.starts_with('%') {
            let component = match self.peek() {
                Token::Dotted(component @ ("x" | "y" | "z")) => {
                    self.next();
                    Some(component)
                }
                _ => None,
            };
            return match Special::named(word, component) {
                Some(special) => Ok(Operand::Special(special)),
                None => {
                    let component = component.map_or(String::new(), |c| format!(".{c}"));
                    self.error(format!(
                        "`{word}{component}` is neither declared nor a supported special register"
                    ))
                }
            };
        }
        Ok(Operand::Name(word.to_owned()))
    }
}
