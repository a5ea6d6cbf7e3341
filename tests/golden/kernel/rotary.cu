extern "C" __global__ void __launch_bounds__(256)
fused(const float* __restrict__ in0, const float* __restrict__ in1, const float* __restrict__ in2, float* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part * 4 + team;
    const int p = lane;
    const float v0 = in0[q * 64 + p];
    const float v1 = in1[(q % 32) * 64 + p];
    const float v2 = v0 * v1;
    const float v3 = p < 32 ? (in0[q * 64 + p + 32]) : 0;
    const float v4 = -v3;
    const float v5 = p >= 32 ? (in0[q * 64 + p + -32]) : 0;
    const float v6 = p < 32 ? v4 : v5;
    const float v7 = in2[(q % 32) * 64 + p];
    const float v8 = v6 * v7;
    const float v9 = v2 + v8;
    out0[q * 64 + p] = v9;
}
