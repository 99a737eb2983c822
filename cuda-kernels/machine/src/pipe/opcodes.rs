//! Classes of opcodes.
//!
//! Names: CUDA Binary Utilities, "Instruction Set Reference", Ampere to Blackwell. The list is
//! closed; modifiers matter where a comment says so.

use super::Class;
use crate::sass::Instruction;

/// The class of an instruction, if its opcode is known.
pub(super) fn class(i: &Instruction) -> Option<Class> {
    let class = match i.opcode.as_str() {
        "FFMA" | "FADD" | "FMUL" | "FFMA32I" | "FADD32I" | "FMUL32I" | "FSWZADD" | "FHFMA"
        | "FHADD" => Class::Float,
        "FFMA2" | "FADD2" | "FMUL2" => Class::FloatPair,
        // The second half of a product of 64 bits is a second pass.
        "IMAD" | "IMUL" | "IMAD32I" | "IMUL32I" if i.has("WIDE") || i.has("HI") => {
            Class::MultiplyWide
        }
        "IMAD" | "IMUL" | "IMAD32I" | "IMUL32I" | "IDP" | "IDP4A" | "XMAD" => Class::Multiply,
        // Integers.
        "IADD3" | "IADD" | "IADD32I" | "VIADD" | "VIADDMNMX" | "IABS" | "VABSDIFF"
        | "VABSDIFF4" | "LEA" | "ISCADD" | "ISCADD32I" | "IMNMX" | "VIMNMX" | "VIMNMX3"
        | "IADD64" | "VIMNMX64" | "VHMNMX" => Class::Integer,
        // Logic and shifts.
        "LOP3" | "LOP" | "LOP32I" | "SHF" | "SHL" | "SHR" | "BMSK" | "SGXT" | "PRMT" => {
            Class::Integer
        }
        // Comparisons and selections.
        "ISETP" | "ISET" | "FSETP" | "FSET" | "ICMP" | "FCMP" | "SEL" | "FSEL" | "SEL64"
        | "FMNMX" | "FMNMX3" | "PLOP3" | "PSETP" | "PSET" | "P2R" | "R2P" | "ISETP64" => {
            Class::Integer
        }
        // Moves. `CS2R` reads the clock or zero.
        "MOV" | "MOV32I" | "CS2R" | "MOV64IUR" | "MOVM" | "VOTE" => Class::Integer,
        // Packed conversions, which the ALU does since 8.0.
        "F2FP" | "I2FP" | "I2I" | "I2IP" | "F2IP" => Class::Integer,
        // Pairs of f16. `HADD2.F32` converts an f16 to f32.
        "HFMA2" | "HADD2" | "HMUL2" | "HFMA2_32I" | "HADD2_32I" | "HMUL2_32I" | "HMNMX2"
        | "HSETP2" | "HSET2" | "HMNMX3" => Class::Half,
        "DFMA" | "DADD" | "DMUL" | "DSETP" | "DMNMX" | "DSET" => Class::Double,
        "F2F" | "F2I" | "I2F" | "FRND" => {
            let is_64 = |m: &String| matches!(m.as_str(), "F64" | "S64" | "U64");
            match i.modifiers.iter().any(is_64) {
                true => Class::Convert64,
                false => Class::Special,
            }
        }
        "MUFU" | "POPC" | "FLO" | "BREV" | "FCHK" | "REDUX" | "CREDUX" | "MATCH" => Class::Special,
        "LDG" | "LD" | "LDT" | "LDTM" => Class::GlobalLoad,
        "LDS" | "LDSM" | "ATOMS" | "SYNCS" => Class::SharedLoad,
        "LDL" => Class::LocalLoad,
        "SHFL" => Class::Shuffle,
        "ST" | "STG" | "STS" | "STL" | "STSM" | "STT" | "STTM" | "STAS" | "RED" | "REDG"
        | "REDS" | "REDAS" | "LDGSTS" | "CCTL" | "CCTLL" | "CCTLT" | "QSPC" | "ARRIVES" => {
            Class::Store
        }
        "ATOM" | "ATOMG" => Class::Atomic,
        "HMMA" | "IMMA" | "DMMA" | "QMMA" | "OMMA" | "BMMA" => Class::Tensor,
        "HGMMA" | "IGMMA" | "QGMMA" | "BGMMA" | "UTCHMMA" | "UTCIMMA" | "UTCQMMA" | "UTCOMMA" => {
            Class::TensorAsynchronous
        }
        "UMOV" | "UMOV32I" | "UIADD3" | "UIADD64" | "UIMAD" | "ULEA" | "ULOP3" | "ULOP"
        | "ULOP32I" | "USHF" | "USHL" | "USHR" | "UISETP" | "USEL" | "UPRMT" | "UFLO" | "UPOPC"
        | "UBREV" | "UBMSK" | "USGXT" | "UPLOP3" | "UPSETP" | "UP2UR" | "UR2UP" | "R2UR"
        | "VOTEU" | "UVIADD" | "UVIMNMX" | "UIMNMX" | "UIABS" | "UFADD" | "UFMUL" | "UFFMA"
        | "UFSEL" | "UFSETP" | "UFMNMX" | "UF2F" | "UF2FP" | "UF2I" | "UI2F" | "UI2FP"
        | "UFRND" | "ULEPC" | "UCLEA" | "USETMAXREG" | "UCS2UR" | "UMEMSETS" | "UGETNEXTWORKID"
        | "UVIRTCOUNT" | "UFSET" | "UISETP64" | "UP2R" => Class::Uniform,
        "LDC" | "ULDC" | "LDCU" | "S2R" | "S2UR" | "B2R" | "R2B" | "BMOV" | "LEPC"
        | "GETLMEMBASE" | "SETLMEMBASE" | "PIXLD" | "AL2P" | "ELECT" => Class::Constant,
        "BRA" | "BRX" | "BRXU" | "JMP" | "JMX" | "JMXU" | "CALL" | "RET" | "EXIT" | "BSSY"
        | "BSYNC" | "BREAK" | "KILL" | "BPT" | "WARPSYNC" | "RPCMOV" | "RTT" => Class::Branch,
        "BAR" | "UCGABAR_ARV" | "UCGABAR_WAIT" | "CGAERRBAR" | "MEMBAR" | "ERRBAR" => {
            Class::Barrier
        }
        "NOP" | "DEPBAR" | "LDGDEPBAR" | "YIELD" | "NANOSLEEP" | "ACQBULK" | "PREEXIT"
        | "WARPGROUP" | "WARPGROUPSET" | "FENCE" | "UTMACMDFLUSH" | "UTMACCTL" | "ACQSHMINIT"
        | "UTCBAR" | "UTCATOMSWS" | "PMTRIG" | "CCTLU" | "ENDCOLLECTIVE" => Class::Wait,
        "UBLKCP" | "UBLKRED" | "UBLKPF" | "UTMALDG" | "UTMASTG" | "UTMAREDG" | "UTMAPF" => {
            Class::Bulk
        }
        _ => return None,
    };
    Some(class)
}
