// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The built-in strategies, one file each.
#pragma once

#include "starling/strategy/registry.h"

namespace starling::strategy {

Description describe_sequential();
Description describe_sync();
Description describe_local_sgd();
Description describe_fedavg();
Description describe_ssp();
Description describe_async();
Description describe_downpour();
Description describe_agn();
Description describe_dc_asgd();
Description describe_easgd();
Description describe_ea_msgd();
Description describe_ea_wild();
Description describe_hogwild();
Description describe_dogwild();
Description describe_all_to_all();
Description describe_neighbours();
Description describe_gosgd();
Description describe_ad_psgd();
Description describe_ist();

}  // namespace starling::strategy
