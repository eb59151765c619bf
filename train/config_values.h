// Values of a configuration as text: one grammar for file, environment and command line, independent of the locale.
//
//   integer   [+-] digits, no leading zero, within 64 bits
//   real      [+-] digits [. digits] [e|E [+-] digits], finite
//   boolean   true | false
//   list      values separated by commas, brackets around them allowed
//   points    step:factor pairs separated by commas
//
// Not taken, each with its reason: `.5`, `5.`, 0x10, 1_000, nan, inf, `1,5`, an empty value, numbers out of range.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "train/config.h"

namespace gau {

/// Each parses all of `text` or throws Error(kData) with the reason alone (the caller adds the place and the key).
void parse_value(const std::string& text, bool& value);
void parse_value(const std::string& text, std::int64_t& value);
void parse_value(const std::string& text, double& value);
void parse_value(const std::string& text, std::string& value);
void parse_value(const std::string& text, std::array<double, 2>& value);
void parse_value(const std::string& text, std::vector<std::int64_t>& value);
void parse_value(const std::string& text, SchedulePoints& value);
void parse_value(const std::string& text, AttentionKind& value);
void parse_value(const std::string& text, InitGamma& value);
void parse_value(const std::string& text, DType& value);
void parse_value(const std::string& text, LabelMode& value);
void parse_value(const std::string& text, OptimizerKind& value);
void parse_value(const std::string& text, ScheduleKind& value);
void parse_value(const std::string& text, ReduceOrder& value);
void parse_value(const std::string& text, SequenceExchange& value);

/// Text that parse_value takes back to the same bits.
std::string print_value(bool value);
std::string print_value(std::int64_t value);
std::string print_value(double value);
std::string print_value(const std::string& value);
std::string print_value(const std::array<double, 2>& value);
std::string print_value(const std::vector<std::int64_t>& value);
std::string print_value(const SchedulePoints& value);
std::string print_value(AttentionKind value);
std::string print_value(InitGamma value);
std::string print_value(DType value);
std::string print_value(LabelMode value);
std::string print_value(OptimizerKind value);
std::string print_value(ScheduleKind value);
std::string print_value(ReduceOrder value);
std::string print_value(SequenceExchange value);

}  // namespace gau
