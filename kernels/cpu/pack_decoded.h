// Panels of the formats with a decoder (panel_layout.h): written from a file's rows, and read back.
#pragma once

#include "kernels/cpu/panel_layout.h"
#include "kernels/ops.h"
#include "kernels/quant_decode.h"

namespace troupe {

// has_decoder(type).
const avx2::PanelLayout& panel_layout(DataType type);

// Panel `panel` of the source; rows beyond the end are left as they are (zeros).
void pack_decoded_panel(std::byte* to, const WeightSource& source, size_t panel);

// Block `b` of row `i` of a panel: what decode_block() gave.
DecodedBlock read_packed_block(DataType type, const std::byte* panel, size_t i, size_t b);

}  // namespace troupe
