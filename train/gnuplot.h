// Runs gnuplot, the program that draws our pictures.
//
// It works in a directory of its own with plain file names, so that no path, label or locale of the user's reaches its command
// language unquoted; the pictures are then moved to where they belong. A machine without it loses nothing but pictures.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace gau {

/// A file of gnuplot's directory: commands when its name ends in ".gp", else data.
struct ScriptFile {
  std::string name;
  std::string contents;
};

/// A picture that the commands make: its name in gnuplot's directory, and where it goes.
struct PictureFile {
  std::string name;
  std::string path;
};

/// Runs all commands in their order. Returns false, with one warning in the life of the program, when gnuplot is not
/// installed. Throws Error(kIo) when gnuplot fails (with what it said) or a file cannot be written.
bool run_gnuplot(const std::vector<ScriptFile>& files, const std::vector<PictureFile>& pictures);

/// A string in gnuplot's single quotes, where only the quote itself is special.
std::string quoted(const std::string& text);

/// Whether some installed font has all of them; gnuplot draws a missing one as a box of the size of the whole picture.
bool fonts_have(const std::set<char32_t>& characters);

}  // namespace gau
