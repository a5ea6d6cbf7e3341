extern "C" __global__ void __launch_bounds__(256)
fused(const float* __restrict__ in0, const float* __restrict__ in1, float* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part * 4 + team;
    const int p = lane;
    const float v0 = in0[(q / 64) * 4096 + (q / 16 % 4) * 64 + (q % 16) * 256 + p];
    const float v1 = in1[(q / 16 % 4) * 64 + p];
    const float v2 = v0 + v1;
    out0[q * 64 + p] = v2;
}
