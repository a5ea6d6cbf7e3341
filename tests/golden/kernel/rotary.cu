extern "C" __global__ void __launch_bounds__(256)
fused(const float* __restrict__ in0, const float* __restrict__ in1, const float* __restrict__ in2, float* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part * 8 + team;
    const int p = lane;
    const float v0 = in0[q * 64 + p];
    const float v1 = in1[(q % 32) * 64 + p];
    const float v2 = v0 * v1;
    const float v3 = in0[q * 64 + p + 32];
    const float v4 = -v3;
    const float v5 = in2[(q % 32) * 64 + p];
    const float v6 = v4 * v5;
    const float v7 = v2 + v6;
    const float v8 = in1[(q % 32) * 64 + p + 32];
    const float v9 = v3 * v8;
    const float v10 = in2[(q % 32) * 64 + p + 32];
    const float v11 = v0 * v10;
    const float v12 = v9 + v11;
    out0[q * 64 + p] = v7;
    out0[q * 64 + p + 32] = v12;
}
