// Keeps an exception's text when an actor ends by it: CAF 0.17 otherwise prints it and reports only
// "runtime_error".
#pragma once

#include <caf/error.hpp>
#include <caf/message.hpp>
#include <caf/sec.hpp>

#include <exception>
#include <string>

namespace troupe {

// For self->set_exception_handler.
inline caf::error keep_text(std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& known) {
    return caf::make_error(caf::sec::runtime_error, std::string(known.what()));
  } catch (...) {
    return caf::make_error(caf::sec::runtime_error, std::string("an exception of unknown type"));
  }
}

}  // namespace troupe
