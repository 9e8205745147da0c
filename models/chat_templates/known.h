// Formats of conversations that can be asked for by name, as short templates of our own.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace troupe::chat {

std::optional<std::string_view> known_template(std::string_view name);
std::vector<std::string_view> known_names();

}  // namespace troupe::chat
